// The routes: each path with its methods, and each method with the schemas that its requests are read by.
//
//   O1  A request is read in one place, before its handler: the ids of its path (404), then its query, then its body (400).
//   O2  What the OpenAPI document says about a route is what stands here: the same schemas, written once.

import type { ServerResponse } from "node:http";
import type { Request, RequestHandler, Router } from "express";
import { z } from "zod";
import { Refusal } from "../../session-store/refusal.ts";
import type { EVENT_STREAM } from "./answer-schema.ts";
import type { Body, Call, Explain, Seal } from "./call.ts";
import { sendJson } from "./call.ts";
import type { PathIds } from "./path-id.ts";

const NO_QUERY = z.strictObject({});

/** Request headers beyond those that every route takes. */
export type HeaderName = "idempotency-key" | "last-event-id";

export interface Operation {
  /** `resource.verb`; unique. */
  readonly id: string;
  readonly summary: string;
  readonly query: z.ZodType;
  /** Null: whatever is sent is read and forgotten. */
  readonly body: z.ZodType | null;
  readonly headers: readonly HeaderName[];
  readonly answer: z.ZodType | typeof EVENT_STREAM;
  /** Gives what is to be answered as JSON, or `undefined` when the response was taken over. */
  run(call: Call): Promise<unknown>;
}

interface Spec {
  readonly id: string;
  readonly summary: string;
  readonly headers?: readonly HeaderName[];
  readonly answer: z.ZodType | typeof EVENT_STREAM;
}

/** A method that takes neither query nor body. O1 */
export function bare(spec: Spec & { handle(call: Call): Promise<unknown> }): Operation {
  return withQuery({ ...spec, query: NO_QUERY });
}

/** A method whose handler gets its query, as the schema made it. O1 */
export function withQuery<Query>(spec: Spec & { readonly query: z.ZodType<Query>; handle(call: Call, query: Query): Promise<unknown> }): Operation {
  const { id, summary, query, headers = [], answer } = spec;
  const run = async (call: Call) => {
    const given = call.query(query);
    await call.noBody();
    return spec.handle(call, given);
  };
  return { id, summary, query, body: null, headers, answer, run };
}

/** A method whose handler gets its body, as the schema made it; `explain` adds details to a refusal, by the path of what is wrong. O1 */
export function withBody<T>(
  spec: Spec & { readonly body: z.ZodType<T>; readonly explain?: Explain; readonly seal?: Seal; handle(call: Call, body: Body<T>): Promise<unknown> },
): Operation {
  const { id, summary, body, explain, seal, headers = [], answer } = spec;
  const run = async (call: Call) => {
    call.query(NO_QUERY);
    return spec.handle(call, await call.body(body, explain, seal));
  };
  return { id, summary, query: NO_QUERY, body, headers, answer, run };
}

const METHODS = ["get", "post", "delete"] as const;

type Methods = Readonly<Partial<Record<(typeof METHODS)[number], Operation>>>;

export interface Route {
  /** As Express spells it: `/v1/agents/:id`. */
  readonly path: string;
  readonly ids: PathIds;
  readonly methods: Methods;
}

/** Adds a path with its methods and what its parameters name; any other method is 405. */
export type AddPath = (path: string, methods: Methods, ids?: PathIds) => void;

/** The paths of a router. `routes` lists what was added. */
export interface Paths {
  readonly add: AddPath;
  readonly routes: readonly Route[];
}

export function pathsOf(router: Router, toCall: (request: Request, response: ServerResponse, ids: PathIds) => Call): Paths {
  const routes: Route[] = [];
  const add: AddPath = (path, methods, ids = {}) => {
    routes.push({ path, ids, methods });
    const route = router.route(path);
    const allowed: string[] = [];
    for (const name of METHODS) {
      const found = methods[name];
      if (!found) continue;
      allowed.push(name.toUpperCase());
      const run: RequestHandler = async (request, response, next) => {
        // Express answers HEAD by GET's handler; a stream must not open for it.
        if (request.method === "HEAD") return next();
        const answer = await found.run(toCall(request, response, ids));
        if (answer !== undefined) sendJson(response, 200, answer);
      };
      route[name](run);
    }
    route.all((_request, response) => {
      response.setHeader("allow", allowed.join(", "));
      throw new Refusal("method_not_allowed");
    });
  };
  return { add, routes };
}
