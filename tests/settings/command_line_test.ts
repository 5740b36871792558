/**
 * Command lines against what the reference's argument parser does with the same definitions (recorded_command_lines.json):
 * what runs, what asks for help or the version, and the exact complaint about everything else.
 */
import assert from "node:assert/strict";
import { loadSettings } from "../../src/settings/load.ts";
import recorded from "./recorded_command_lines.json" with { type: "json" };

interface Recorded {
  readonly args: string[];
  /** The three lane variables alone when absent. */
  readonly env?: Record<string, string>;
  /** `runs`, `help`, `version`, or everything that is printed before the first empty line. */
  readonly outcome: string;
}

const LANE = { SIE_POOL: "p", SIE_BUNDLE: "b", SIE_MACHINE_PROFILE: "m" };

function outcomeOf(row: Recorded): string {
  const environment = { SIE_NATS_URL: "nats://broker", ...row.env ?? LANE };
  const loaded = loadSettings({ program: "p", args: row.args, environment, newWorkerId: () => "w" });
  // Exit code 1 comes after the command line was accepted.
  if (loaded.kind === "settings" || loaded.exitCode === 1) return "runs";
  if (loaded.exitCode === 0) return loaded.stdout.startsWith("p ") ? "version" : "help";
  assert.equal(loaded.stdout, "");
  return loaded.stderr.split("\n\n")[0] ?? "";
}

Deno.test("command lines come to what was recorded", async (t) => {
  assert.ok(recorded.length > 100);
  for (const row of recorded as unknown as Recorded[]) {
    await t.step(`${JSON.stringify(row.args)} ${row.env === undefined ? "" : JSON.stringify(row.env)}`, () => {
      assert.equal(outcomeOf(row), row.outcome);
    });
  }
});

Deno.test("a usage error shows the error, the usage and where to find more", () => {
  const loaded = loadSettings({
    program: "sie-server-sidecar",
    args: ["--x"],
    environment: {},
    newWorkerId: () => "w",
  });
  assert.ok(loaded.kind === "text");
  assert.equal(
    loaded.stderr,
    "error: unexpected argument '--x' found\n\n" +
      "Usage: sie-server-sidecar [OPTIONS] --pool <POOL> --bundle <BUNDLE> --machine-profile <MACHINE_PROFILE>\n\n" +
      "For more information, try '--help'.\n",
  );
});

Deno.test("control characters of an argument do not reach the terminal", () => {
  for (const args of [["--\x1b[31m"], ["\x1b]0;title\x07"], ["--probe-port=\x1b[2J"], ["--help=\r\nx"]]) {
    const loaded = loadSettings({ program: "p", args, environment: LANE, newWorkerId: () => "w" });
    assert.ok(loaded.kind === "text");
    assert.doesNotMatch(loaded.stderr.replaceAll("\n", ""), /\p{Cc}/u);
    assert.match(loaded.stderr, /\\u\{(1b|d)\}/);
  }
});
