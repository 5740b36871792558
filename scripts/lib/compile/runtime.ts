/** The compiler for tests of compiled executables: the one that the environment names, else one that works offline. */
import { join } from "node:path";
import { type Environment, sourceRoot } from "../places.ts";
import { capture } from "../run.ts";

/** Variables that `scripts/compile.ts` reads. */
export interface CompilerVariables {
  readonly COMPILE_DENO: string;
  readonly DENORT_BIN?: string;
}

/**
 * `COMPILE_DENO` and `DENORT_BIN` of the environment, else what `scripts/denort.sh` puts into the cache: a Deno together with
 * the runtime part of the same version, which needs no download when it compiles.
 */
export async function ensureCompiler(cache: string, env: Environment): Promise<CompilerVariables> {
  if (env["COMPILE_DENO"]) {
    return { COMPILE_DENO: env["COMPILE_DENO"], ...(env["DENORT_BIN"] ? { DENORT_BIN: env["DENORT_BIN"] } : {}) };
  }
  const { code, stdout, stderr } = await capture({
    command: ["bash", join(sourceRoot, "scripts/denort.sh"), join(cache, "denort")],
  });
  if (code !== 0) throw new Error(`scripts/denort.sh ended with ${code}: ${stderr.trim()}`);
  const exported = (name: string): string => {
    const value = new RegExp(`^export ${name}=(.*)$`, "m").exec(stdout)?.[1];
    if (value === undefined || /[\\'"\s]/.test(value)) throw new Error(`scripts/denort.sh printed no usable ${name}`);
    return value;
  };
  return { COMPILE_DENO: exported("COMPILE_DENO"), DENORT_BIN: exported("DENORT_BIN") };
}
