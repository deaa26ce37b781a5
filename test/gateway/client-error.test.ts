// What never becomes a request is answered like everything else: with an envelope and a request id.

import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { HEADER_BYTES_MAX, harden } from "../../gateway/listen.ts";

const server = createServer({ maxHeaderSize: HEADER_BYTES_MAX }, (_request, response) => response.end("reached"));
beforeAll(async () => {
  harden(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
});
afterAll(() => new Promise((resolve) => server.close(resolve)));

/** Everything that comes back for these bytes, until the connection ends. */
function answerTo(bytes: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = connect((server.address() as AddressInfo).port, "127.0.0.1", () => socket.write(bytes));
    socket.setTimeout(5_000, () => socket.destroy(new Error("no answer")));
    socket.setEncoding("utf8").on("data", (part) => {
      text += part;
    });
    socket.on("error", reject).on("close", () => resolve(text));
  });
}

for (const [what, bytes, status] of [
  ["headers over the limit", `GET / HTTP/1.1\r\nhost: a\r\nx: ${"y".repeat(HEADER_BYTES_MAX)}\r\n\r\n`, 431],
  ["no HTTP", "canary\r\n\r\n", 400],
  ["two lengths", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx", 400],
] as const)
  test(`${what} is ${status}, with an envelope that holds the request id of its header`, async () => {
    const [head = "", body = ""] = (await answerTo(bytes)).split("\r\n\r\n");
    expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(head).toMatch(/^content-type: application\/json$/im);
    const id = /^request-id: (req_\w+)$/im.exec(head)?.[1];
    expect(JSON.parse(body)).toEqual({ type: "error", error: { type: "invalid_request_error", message: expect.any(String) }, request_id: id });
    expect(body).not.toContain("canary");
  });

test("an expectation that is not known does not keep a request out", async () => {
  expect(await answerTo("GET / HTTP/1.1\r\nhost: a\r\nexpect: a miracle\r\nconnection: close\r\n\r\n")).toContain("reached");
});
