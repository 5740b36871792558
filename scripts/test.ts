/**
 * `deno task test [FILE…] [OPTION…]`: runs the tests on a machine that has nothing but Deno and Python (or Go). Arguments
 * that name files or folders of tests replace the default, all of them; options go to `deno test`.
 */
import { printError } from "./lib/print.ts";
import { runTests } from "./lib/test_run.ts";

/** Tests that need more than this script provides: the tasks `conformance` and `e2e` run them. */
const ELSEWHERE = ["tests/conformance/", "tests/compiled/"];

const options = Deno.args.filter((argument) => argument.startsWith("-"));
const named = Deno.args.filter((argument) => !argument.startsWith("-"));
try {
  Deno.exitCode = named.length > 0
    ? await runTests(named, options)
    : await runTests(["tests/"], [`--ignore=${ELSEWHERE}`, ...options]);
} catch (thrown) {
  printError(`test: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
