/** Reading TypeScript just well enough for layout rules: what a file imports, and its code without comments and texts. */

/** A source file, prepared for the rules. */
export interface SourceFile {
  /** Path relative to the root, with forward slashes. */
  readonly path: string;
  /** Number of lines. */
  readonly lines: number;
  /** The code; comments and the contents of strings, templates and regular expressions are blanks, line breaks stay. */
  readonly code: string;
  /** Everything it imports, in order of appearance. */
  readonly imports: readonly Import[];
}

/** One import, re-export, dynamic import or worker URL. */
export interface Import {
  readonly specifier: string;
  readonly line: number;
  readonly form: "import" | "reexport" | "worker";
}

/** Prepares a file's text. */
export function readSource(path: string, text: string): SourceFile {
  const { code, strings } = mask(text);
  return { path, lines: countLines(text), code, imports: findImports(code, strings) };
}

/** One-based number of the line that holds `offset`. */
export function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf("\n"); at !== -1 && at < offset; at = text.indexOf("\n", at + 1)) line++;
  return line;
}

function countLines(text: string): number {
  return text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
}

/**
 * The places of an import in masked code. A masked string is `""` with blanks in between; its text is looked up by offset.
 * Worker files count too: `new URL("./worker.ts", import.meta.url)`.
 */
function findImports(code: string, strings: ReadonlyMap<number, string>): Import[] {
  const forms: readonly [RegExp, Import["form"]][] = [
    [/\bimport\s+(?:type\s+)?(?:[\w$*{][^;"'()]*?\bfrom\s*)?(?=["'])/g, "import"],
    [/\bexport\s+(?:type\s+)?(?:\*(?:\s*as\s+[\w$]+)?|\{[^}]*\})\s*from\s*(?=["'])/g, "reexport"],
    [/\bimport\s*\(\s*(?=["'])/g, "import"],
    [/\bnew\s+URL\s*\(\s*(?=["'] *["']\s*,\s*import\.meta\.url)/g, "worker"],
  ];
  const found: (Import & { readonly offset: number })[] = [];
  for (const [pattern, form] of forms) {
    for (const match of code.matchAll(pattern)) {
      const offset = match.index + match[0].length;
      const specifier = strings.get(offset);
      if (specifier === undefined) continue;
      // A URL beside the file is an import only when it names code.
      if (form === "worker" && !specifier.endsWith(".ts")) continue;
      found.push({ specifier, form, offset, line: lineAt(code, offset) });
    }
  }
  found.sort((a, b) => a.offset - b.offset);
  return found.map(({ specifier, form, line }) => ({ specifier, form, line }));
}

/** Blanks what is not code. `strings` maps the offset of each opening quote to the text of the string. */
function mask(text: string): { code: string; strings: Map<number, string> } {
  const strings = new Map<number, string>();
  const out = [...Array(text.length)].map((_, i) => text.charAt(i));
  const blank = (from: number, to: number) => {
    for (let i = from; i < to; i++) if (out[i] !== "\n") out[i] = " ";
  };
  /** Depths of braces inside `${…}` of the open templates, innermost last. */
  const templates: number[] = [];
  let at = 0;
  let before = "";
  while (at < text.length) {
    const two = text.slice(at, at + 2);
    const char = text.charAt(at);
    if (two === "//") {
      const end = endOf(text, "\n", at);
      blank(at, end);
      at = end;
    } else if (two === "/*") {
      const end = endOf(text, "*/", at + 2) + 2;
      blank(at, end);
      at = end;
    } else if (char === '"' || char === "'") {
      const end = endOfQuoted(text, at, char);
      strings.set(at, text.slice(at + 1, end));
      blank(at + 1, end);
      before = char;
      at = end + 1;
    } else if (char === "`" || (char === "}" && templates.at(-1) === 0)) {
      if (char === "}") templates.pop();
      const end = endOfTemplateText(text, at + 1);
      blank(at + 1, end);
      if (text.startsWith("${", end)) {
        templates.push(0);
        at = end + 2;
        before = "{";
      } else {
        at = end + 1;
        before = "`";
      }
    } else if (char === "/" && regexCanStart(text, at, before)) {
      const end = endOfRegex(text, at);
      blank(at + 1, end);
      before = "/";
      at = end + 1;
    } else {
      const depth = templates.length - 1;
      if (depth >= 0 && char === "{") templates[depth] = (templates[depth] ?? 0) + 1;
      if (depth >= 0 && char === "}") templates[depth] = (templates[depth] ?? 0) - 1;
      if (!/\s/.test(char)) before = char;
      at++;
    }
  }
  return { code: out.join(""), strings };
}

function endOf(text: string, mark: string, from: number): number {
  const found = text.indexOf(mark, from);
  return found === -1 ? text.length : found;
}

function endOfQuoted(text: string, start: number, quote: string): number {
  let at = start + 1;
  while (at < text.length && text.charAt(at) !== quote) at += text.charAt(at) === "\\" ? 2 : 1;
  return Math.min(at, text.length);
}

/** The closing back quote, or the `${` that comes before it. */
function endOfTemplateText(text: string, start: number): number {
  let at = start;
  while (at < text.length && text.charAt(at) !== "`" && !text.startsWith("${", at)) {
    at += text.charAt(at) === "\\" ? 2 : 1;
  }
  return Math.min(at, text.length);
}

function endOfRegex(text: string, start: number): number {
  let inClass = false;
  let at = start + 1;
  for (; at < text.length; at++) {
    const char = text.charAt(at);
    if (char === "\\") at++;
    else if (char === "[") inClass = true;
    else if (char === "]") inClass = false;
    else if (char === "/" && !inClass) break;
  }
  return Math.min(at, text.length);
}

/** A slash divides after a value and starts a regular expression elsewhere. */
function regexCanStart(text: string, at: number, before: string): boolean {
  if (before === "" || "(,=:[!&|?{};+-*%<>~^".includes(before)) return true;
  return /\b(?:return|typeof|case|in|of|delete|void|throw|await|yield)\s*$/.test(text.slice(Math.max(0, at - 12), at));
}
