// The test double of a Vault server as a program: `PORT=8290 node dist/test/support/vault-double/main.js`.

import { startVaultDouble } from "./server.ts";

const double = await startVaultDouble(Number(process.env.PORT ?? 0));
console.log(JSON.stringify({ msg: "process.listening", role: "test double of a Vault server", url: double.url }));
for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.on(signal, () => {
    double.close().then(
      () => process.exit(0),
      () => process.exit(1),
    );
  });
}
