// What a hand may ask of a client: only what that client said it can do.

type Capabilities = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Capabilities => typeof value === "object" && value !== null && !Array.isArray(value);

/** What a client must have declared to be asked this; null: the question is none that needs anything. */
function neededFor(method: string, params: unknown): Readonly<Record<string, Capabilities>> | null {
  const given = isObject(params) ? params : {};
  switch (method) {
    case "elicitation/create":
      return { elicitation: given.mode === "url" ? { url: {} } : { form: {} } };
    case "sampling/createMessage":
      return { sampling: given.tools !== undefined || given.toolChoice !== undefined ? { tools: {} } : {} };
    case "roots/list":
      return { roots: {} };
    default:
      return null;
  }
}

/** Of what a question needs, what the client did not declare; null: it may be asked. */
export function lackingFor(method: string, params: unknown, declared: unknown): Capabilities | null {
  const needed = neededFor(method, params);
  if (needed === null) return null;
  const lacking: Record<string, Capabilities> = {};
  for (const [name, members] of Object.entries(needed)) {
    const has = isObject(declared) ? declared[name] : undefined;
    if (!isObject(has)) lacking[name] = members;
    else if (Object.keys(members).some((member) => has[member] === undefined && !isImplied(name, member, has))) lacking[name] = members;
  }
  return Object.keys(lacking).length > 0 ? lacking : null;
}

/** A client that says no more than `elicitation` can show a form. */
const isImplied = (name: string, member: string, has: Capabilities): boolean => name === "elicitation" && member === "form" && has.url === undefined;
