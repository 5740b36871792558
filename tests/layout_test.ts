/** The layout rules: on small trees that break exactly one of them, and on this tree, which breaks none. */
import assert from "node:assert/strict";
import { checkLayout, type Finding } from "../scripts/lib/layout/check.ts";
import { findCycles } from "../scripts/lib/layout/cycles.ts";
import { readSource } from "../scripts/lib/layout/source.ts";
import type { Exception } from "../scripts/lib/layout/table.ts";
import { fromFileUrl } from "./harness/paths.ts";
import { TestFolder } from "./harness/process.ts";

const ROOT = fromFileUrl(new URL("..", import.meta.url));

function check(tree: Record<string, string>, exceptions: readonly Exception[] = []): Finding[] {
  return checkLayout(Object.entries(tree).map(([path, text]) => readSource(path, text)), exceptions);
}

function said(findings: readonly Finding[]): string[] {
  return findings.map(({ path, line, rule, text }) => `${path}:${line} ${rule}: ${text}`);
}

Deno.test("imports in every form are found, at their lines", () => {
  const source = readSource(
    "src/wire/a.ts",
    [
      `import { one,`,
      `  two } from "./one.ts"; // from "./comment.ts"`,
      `import type { Three } from './three.ts';`,
      `import * as four from "./four.ts";`,
      `import "./five.ts";`,
      `export { six } from "./six.ts";`,
      `/* import "./block.ts"; */`,
      'const text = `import "./template.ts" ${await import("./seven.ts")} from \'./tail.ts\'`;',
      `const regex = /import "\\/x/.test("import './string.ts'");`,
      `new Worker(new URL("./eight.ts", import.meta.url), { type: "module" });`,
      `const data = new URL("./table.bin", import.meta.url);`,
    ].join("\n"),
  );
  assert.deepEqual(
    source.imports.map(({ specifier, line }) => `${specifier} ${line}`),
    [
      "./one.ts 2",
      "./three.ts 3",
      "./four.ts 4",
      "./five.ts 5",
      "./six.ts 6",
      "./seven.ts 8",
      "./eight.ts 10",
    ],
  );
  const ofForm = (form: string) =>
    source.imports.filter((entry) => entry.form === form).map((entry) => entry.specifier);
  assert.deepEqual(ofForm("reexport"), ["./six.ts"]);
  assert.deepEqual(ofForm("worker"), ["./eight.ts"]);
});

Deno.test("a division is not a regular expression, and a brace in a template does not end it early", () => {
  const { code } = readSource(
    "src/a.ts",
    "const a = b / c; // setTimeout\nconst d = `${{ e: `}` }.e} Date.now` / f; g();",
  );
  assert.ok(code.includes("b / c;") && code.includes("/ f; g();"), code);
  assert.ok(!code.includes("setTimeout") && !code.includes("Date.now"), code);
});

Deno.test("a circle is reported once, along its edges", () => {
  const findings = check({
    "src/wire/a.ts": `import { b } from "./b.ts"; export const a = b;`,
    "src/wire/b.ts": `import { c } from "./c.ts"; export const b = c;`,
    "src/wire/c.ts": `import type { a } from "./a.ts"; export const c: typeof a = 1;`,
    "src/wire/d.ts": `import { a } from "./a.ts"; export const d = a;`,
  });
  assert.deepEqual(said(findings), [
    "src/wire/a.ts:1 cycle: imports form a circle: src/wire/a.ts → src/wire/b.ts → src/wire/c.ts → src/wire/a.ts",
  ]);
});

Deno.test("two circles, one of a single file, are two findings", () => {
  const cycles = findCycles(
    new Map([["a", ["a", "b"]], ["b", ["c"]], ["c", ["d"]], ["d", ["b", "c"]], ["e", ["a"]]]),
  );
  assert.deepEqual(cycles, [["a"], ["b", "c", "d"]]);
});

Deno.test("backward imports are reported with both ends", () => {
  const leaf = "export const x = 1;";
  const findings = check({
    "main.ts": `import { x } from "./src/serve.ts"; import { y } from "./src/dispatch/y.ts"; void [x, y];`,
    "src/serve.ts": `import { x } from "./serve/part.ts"; void x;`,
    "src/serve/part.ts": `import { x } from "../consumer/x.ts"; void x;`,
    "src/health/a.ts": `import { x } from "../serve/part.ts"; void x;`,
    "src/consumer/x.ts": leaf,
    "src/dispatch/x.ts": `import { x } from "../consumer/x.ts";\nimport { y } from "../wire/y.ts"; void [x, y];`,
    "src/dispatch/y.ts": `import { x } from "../serve.ts"; void x;`,
    "src/runtime/errors.ts": leaf,
    "src/runtime/clock.ts": leaf,
    "src/wire/y.ts": `import { x } from "../runtime/errors.ts"; void x;`,
    "src/wire/z.ts": `import { x } from "../runtime/clock.ts"; void x;`,
    "src/scheduler/a.ts": `import { x } from "../../tests/help.ts"; void x;`,
    "src/unheard_of/a.ts": `import { x } from "../runtime/clock.ts"; void x;`,
    "tests/help.ts": `import { x } from "../src/consumer/x.ts"; export { x };`,
  });
  assert.deepEqual(said(findings), [
    "src/dispatch/x.ts:1 direction: dispatch must not know consumer (src/consumer/x.ts)",
    "src/dispatch/y.ts:1 direction: only main.ts may import the files that wire everything together (src/serve.ts)",
    "src/health/a.ts:1 direction: only main.ts may import the files that wire everything together (src/serve/part.ts)",
    "src/scheduler/a.ts:1 direction: src/ must not import what lies outside it (tests/help.ts)",
    "src/unheard_of/a.ts:1 direction: the folder unheard_of is not in the table of scripts/lib/layout/table.ts " +
    "(src/runtime/clock.ts)",
    "src/wire/z.ts:1 direction: wire must not know runtime (src/runtime/clock.ts)",
  ]);
});

Deno.test("the rules of the other end are no part of the program", () => {
  const use = (path: string) => `import { x } from "${path}"; void x;`;
  const findings = check({
    "main.ts": use("./src/gateway/x.ts"),
    "src/gateway/x.ts": "export const x = 1;",
    "src/gateway/y.ts": use("./x.ts") + use("../wire/x.ts"),
    "src/publish/x.ts": use("../gateway/x.ts"),
    "src/serve.ts": use("./gateway/x.ts"),
    "src/serve/part.ts": use("../gateway/x.ts"),
    "src/wire/x.ts": "export const x = 1;",
    "tests/x.ts": use("../src/gateway/x.ts"),
  });
  assert.deepEqual(
    said(findings),
    ["main.ts", "src/publish/x.ts", "src/serve.ts", "src/serve/part.ts"].map((path) =>
      `${path}:1 direction: gateway is the other end's: the program must not contain it (src/gateway/x.ts)`
    ),
  );
});

Deno.test("packages are imported by bare names, and NATS and sockets only at the edges", () => {
  const findings = check({
    "src/dispatch/a.ts": `import { connect } from "@nats-io/transport-node"; void connect;`,
    "src/consumer/a.ts": `import { connect } from "@nats-io/transport-node"; void connect;`,
    "src/scheduler/a.ts": `import { connect } from "node:net"; void connect;`,
    "src/payload/a.ts": `import x from "npm:left-pad@1.0.0"; void x;`,
    "tests/a.ts": `import { connect } from "@nats-io/transport-node"; void connect;`,
  });
  assert.deepEqual(said(findings), [
    "src/dispatch/a.ts:1 foreign: only the consumer knows NATS (@nats-io/transport-node)",
    "src/payload/a.ts:1 foreign: packages are imported by the bare names of deno.json (npm:left-pad@1.0.0)",
    "src/scheduler/a.ts:1 foreign: only the edges know sockets (node:net)",
  ]);
});

Deno.test("an import of a file that is not there is reported, data beside the code is not", () => {
  const findings = check({
    "src/wire/a.ts":
      `import { x } from "./gone.ts"; import table from "./table.json" with { type: "json" }; void [x, table];`,
  });
  assert.deepEqual(said(findings), ["src/wire/a.ts:1 unresolved: there is no src/wire/gone.ts"]);
});

Deno.test("long files: advice above 400 lines, an error above 520", () => {
  const lines = (count: number) => `${Array(count).fill("void 0;").join("\n")}\n`;
  assert.deepEqual(check({ "src/wire/a.ts": lines(400) }), []);
  const [advice] = check({ "src/wire/a.ts": lines(401) });
  assert.equal(advice?.advice, true);
  assert.match(advice?.text ?? "", /^401 lines, more than 400/);
  assert.equal(check({ "src/wire/a.ts": lines(520) })[0]?.advice, true);
  const [error] = check({ "src/wire/a.ts": lines(521) });
  assert.equal(error?.advice, false);
  assert.match(error?.text ?? "", /^521 lines, at most 520/);
});

Deno.test("default exports and barrel files", () => {
  const findings = check({
    "src/wire/a.ts": "export const a = 1;",
    "src/wire/all.ts": `/** Everything. */\nexport { a } from "./a.ts";\nexport type { B } from './b.ts';\n`,
    "src/wire/b.ts": `export default 1; export interface B {}`,
    "src/wire/c.ts": `const c = 1; export { c as default };`,
    "src/wire/mod.ts": `export const m = 1;`,
    "src/wire/some.ts": `export { a } from "./a.ts"; export const more = 1;`,
    "src/wire/star.ts": `export * from "./a.ts"; export const more = 1;`,
    "src/wire/word.ts": `export const text = "export default";`,
  });
  assert.deepEqual(findings.map(({ path, rule }) => `${path} ${rule}`), [
    "src/wire/all.ts barrel",
    "src/wire/b.ts default-export",
    "src/wire/c.ts default-export",
    "src/wire/mod.ts barrel",
    "src/wire/star.ts barrel",
  ]);
});

Deno.test("time, timers and randomness in src/ are passed in", () => {
  const use = [
    "Date.now();",
    "new Date();",
    "performance.now();",
    "setTimeout(f, 1);",
    "Math.random();",
    "AbortSignal.timeout(5);",
    "new Date(0); // Date.now()",
  ].join("\n");
  const findings = check({ "src/wire/a.ts": use, "tests/a.ts": use });
  assert.deepEqual(findings.map(({ path, line, rule }) => `${path}:${line} ${rule}`), [
    "src/wire/a.ts:1 ambient",
    "src/wire/a.ts:2 ambient",
    "src/wire/a.ts:3 ambient",
    "src/wire/a.ts:4 ambient",
    "src/wire/a.ts:5 ambient",
    "src/wire/a.ts:6 ambient",
  ]);
});

Deno.test("an exception covers its rule at its place, and is reported when nothing needs it", () => {
  const exception: Exception = { rule: "ambient", path: "src/wire/a.ts", reason: "because" };
  assert.deepEqual(check({ "src/wire/a.ts": "Date.now();" }, [exception]), []);
  assert.deepEqual(said(check({ "src/wire/a.ts": "void 0;" }, [exception])), [
    "src/wire/a.ts:1 ambient: the exception is no longer needed: because",
  ]);
  assert.equal(check({ "src/wire/a.ts": "export default 1;" }, [exception]).length, 2);
});

/** Runs the script as `deno task layout` does. */
async function runScript(...args: string[]): Promise<{ code: number; text: string }> {
  const { code, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", "--allow-read", `${ROOT}scripts/check_layout.ts`, ...args],
    stdout: "piped",
    stderr: "inherit",
  }).output();
  return { code, text: new TextDecoder().decode(stdout) };
}

Deno.test("the script fails on a bad tree and says where", async () => {
  using folder = new TestFolder();
  await Deno.mkdir(folder.file("src/wire"), { recursive: true });
  await Deno.writeTextFile(folder.file("src/wire/a.ts"), "\nexport default Math.random();\n");
  const { code, text } = await runScript(folder.path);
  assert.equal(code, 1);
  assert.match(text, /^src\/wire\/a\.ts:2: error default-export: /m);
  assert.match(text, /^src\/wire\/a\.ts:2: error ambient: Math\.random/m);
  assert.match(text, /^layout: 1 files, 2 errors, 0 pieces of advice$/m);
});

Deno.test("the script fails on an empty tree: it would prove nothing", async () => {
  using folder = new TestFolder();
  assert.equal((await runScript(folder.path)).code, 1);
});

Deno.test("this tree follows the rules", async () => {
  const { code, text } = await runScript();
  assert.equal(code, 0, text);
});
