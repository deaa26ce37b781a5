// Lets the conformance suite start on Node 20: it imports `globSync` of `node:fs`, which is there from Node 22 on, for a command that we don't use.

import { register } from "node:module";

const hooks = `
export async function resolve(specifier, context, next) {
  const isAsked = specifier === "fs" && context.parentURL?.includes("/@modelcontextprotocol/conformance/");
  return isAsked ? { url: "fs-with-glob:", shortCircuit: true } : next(specifier, context);
}
export async function load(url, context, next) {
  if (url !== "fs-with-glob:") return next(url, context);
  const source = 'export * from "node:fs"; export { default } from "node:fs"; export const globSync = () => [];';
  return { format: "module", shortCircuit: true, source };
}`;

register(`data:text/javascript,${encodeURIComponent(hooks)}`);
