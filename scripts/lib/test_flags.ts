/** Permissions of a test run: what `permissions.test` of `deno.json` cannot name because it is known only at run time. */
import { join } from "node:path";
import { type Environment, sourceRoot, temporaryFolder } from "./places.ts";

/** What a test run works with. */
export interface TestPlaces {
  /** The running Deno: tests start the sidecar with it. */
  readonly denoPath: string;
  /** The folder for everything that tests write. */
  readonly scratch: string;
  /** The cache folder, with the peers installed. */
  readonly cache: string;
  readonly env: Environment;
  /** More programs that the tests of this run may start. */
  readonly programs: readonly string[];
  /** More places that they may read. */
  readonly read: readonly string[];
}

/** Flags beside `-P=test`; each replaces the set's entry of its kind. */
export function testFlags(places: TestPlaces): string[] {
  const { env } = places;
  const read = [
    sourceRoot,
    join(sourceRoot, "../shared"),
    temporaryFolder(env),
    places.scratch,
    places.cache,
    "/proc",
    ...places.read,
  ];
  if (env["VECTORS_DIR"]) read.push(env["VECTORS_DIR"]);
  const run = [places.denoPath, "nats-server", ...places.programs];
  const replaced = env["SIDECAR_CMD"]?.trim().split(/\s+/)[0];
  if (replaced) run.push(replaced);
  return [`--allow-read=${read.join(",")}`, `--allow-write=${places.scratch}`, `--allow-run=${run.join(",")}`];
}
