// Texts of a tool that hide something from a person who reads them, while a model reads all of it.
//
//   U1  Characters that show nothing or turn the reading direction, control characters (and so escape sequences of terminals), and HTML comments.
//   U2  What emoji are made of is nothing hidden: a variation selector or a joiner between pictures.

import type { ServerTool } from "./hand.ts";

/** Joiners, marks of direction, fillers, selectors, tags; and the empty Braille cell. */
const INVISIBLE = /[\p{Default_Ignorable_Code_Point}\p{Cf}\u2800]/u;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
const CONTROL = /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F]/u;
const COMMENT = /<!--/;
/** U2 */
const EMOJI = /[\p{Extended_Pictographic}\p{Emoji_Modifier}#*0-9]\uFE0F?\u20E3?|\u200D(?=\p{Extended_Pictographic})/gu;

/** What is odd about a tool's texts, in words that can be shown; null: nothing. */
export function suspicionOf({ name, description, input_schema, annotations }: ServerTool): string | null {
  for (const [place, value] of Object.entries({ name, description, "input schema": input_schema, annotations }))
    for (const text of textsIn(value)) {
      const says = oddIn(text);
      if (says !== null) return `its ${place} holds ${says}`;
    }
  return null;
}

function oddIn(text: string): string | null {
  const control = CONTROL.exec(text)?.[0];
  if (control !== undefined) return `a control character (${codeOf(control)})`;
  const invisible = INVISIBLE.exec(text.replace(EMOJI, ""))?.[0];
  if (invisible !== undefined) return `an invisible character (${codeOf(invisible)})`;
  return COMMENT.test(text) ? "an HTML comment" : null;
}

const codeOf = (character: string): string => `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

/** Every text of a value, names included. Definitions are bounded in depth and size where they are read. */
function textsIn(value: unknown): readonly string[] {
  if (typeof value === "string") return [value];
  if (typeof value !== "object" || value === null) return [];
  if (Array.isArray(value)) return value.flatMap(textsIn);
  return Object.entries(value).flatMap(([name, inner]) => [name, ...textsIn(inner)]);
}
