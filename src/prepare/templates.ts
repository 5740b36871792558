/** The text that is tokenised for an encode item (spec/preparation.md 4). The item that goes to the backend keeps its own. */
import { KeyTable } from "../wire/msgpack/keys.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";

/** Templates that a model declares. */
export interface TemplateDefaults {
  readonly query: string | undefined;
  readonly document: string | undefined;
}

/** What a template is filled with. */
export interface TemplateValues {
  readonly text: string;
  readonly instruction: string | undefined;
}

/**
 * Longest text that is made, in UTF-16 units. A template of a client can repeat a long text any number of times; what is longer
 * is left to the backend, whose own limit for an item's text is 2 MiB.
 */
export const MAX_TEMPLATED_LENGTH = 2 * 1024 * 1024;

const QUERY = 0, DOCUMENT = 1;
const keys = new KeyTable(["query_template", "doc_template"]);

/**
 * The template for one item: that of its options when it is a string there (the empty one is: it means no template), else the
 * model's. Of a repeated option the last one counts, as for the backend.
 *
 * @param options at the item's options, of any type; undefined when it has none
 */
export function templateFor(
  options: MsgpackReader | undefined,
  isQuery: boolean,
  defaults: TemplateDefaults,
): string | undefined {
  const wanted = isQuery ? QUERY : DOCUMENT;
  const fallback = isQuery ? defaults.query : defaults.document;
  if (options === undefined || options.kind() !== "map") return fallback;
  let template = fallback;
  for (let left = options.mapHeader(); left > 0; left--) {
    const isWanted = options.keySpan() && keys.indexOf(options.bytes, options.spanAt, options.spanLength) === wanted;
    if (isWanted && options.kind() === "str") {
      template = options.text();
    } else {
      if (isWanted) template = fallback;
      options.skip();
    }
  }
  return template;
}

/**
 * The text to tokenise: the template filled in; without one the instruction, if any, before the text. Undefined when it would be
 * longer than {@link MAX_TEMPLATED_LENGTH}.
 */
export function templatedText(template: string | undefined, values: TemplateValues): string | undefined {
  if (template !== undefined && template !== "") return expandTemplate(template, values);
  const { instruction, text } = values;
  const whole = instruction === undefined || instruction === "" ? text : `${instruction} ${text}`;
  return whole.length > MAX_TEMPLATED_LENGTH ? undefined : whole;
}

/**
 * Fills in `{text}` and `{instruction}` (nothing when there is none), from left to right and once: what was put in is not looked
 * at again. `{{` and `}}` stand for single braces; any other name stays as it is written, braces included.
 */
function expandTemplate(template: string, values: TemplateValues): string | undefined {
  let expanded = "";
  let at = 0;
  while (at < template.length && expanded.length <= MAX_TEMPLATED_LENGTH) {
    const brace = nextBrace(template, at);
    expanded += template.slice(at, brace);
    const char = template[brace];
    if (char === undefined) break;
    if (template[brace + 1] === char) {
      expanded += char;
      at = brace + 2;
    } else if (char === "}") {
      expanded += char;
      at = brace + 1;
    } else {
      const close = template.indexOf("}", brace + 1);
      const end = close < 0 ? template.length : close + 1;
      expanded += placeholder(template.slice(brace, end), values);
      at = end;
    }
  }
  return expanded.length > MAX_TEMPLATED_LENGTH ? undefined : expanded;
}

/** What stands in for a placeholder as it is written in the template. */
function placeholder(written: string, values: TemplateValues): string {
  if (written === "{text}") return values.text;
  if (written === "{instruction}") return values.instruction ?? "";
  return written;
}

/** Position of the next brace of either kind, the length of the template when there is none. */
function nextBrace(template: string, from: number): number {
  for (let i = from; i < template.length; i++) {
    const char = template[i];
    if (char === "{" || char === "}") return i;
  }
  return template.length;
}
