// The scripted model as a program: `PORT=8090 node dist/test/support/model/main.js`. MODEL_SERVER_KEY: only that key is accepted.

import { startModel } from "./server.ts";

const key = process.env.MODEL_SERVER_KEY;
const model = await startModel({
  port: Number(process.env.PORT ?? 8090),
  host: process.env.HOST ?? "127.0.0.1",
  ...(key === undefined || key === "" ? {} : { key }),
});
console.log(JSON.stringify({ msg: "process.listening", role: "scripted-model", url: model.url }));
for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.on(signal, () => {
    model.close().then(
      () => process.exit(0),
      () => process.exit(1),
    );
  });
}
