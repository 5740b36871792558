/** Child processes of scripts: started with the script's own streams or with their output collected. */

/** A command and how to start it. */
export interface CommandLine {
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** Starts a command with this script's streams and waits for it. @returns its exit code. */
export async function run(line: CommandLine): Promise<number> {
  const child = start(line, "inherit");
  return await whileForwardingSignals(child);
}

/** Like {@link run}, but a non-zero exit code is an error. */
export async function mustRun(line: CommandLine): Promise<void> {
  const code = await run(line);
  if (code !== 0) throw new Error(`${line.command.join(" ")} ended with ${code}`);
}

/** Starts a command and collects both streams. */
export async function capture(line: CommandLine): Promise<{ code: number; stdout: string; stderr: string }> {
  const output = await command(line, "piped").output();
  const decoder = new TextDecoder();
  return { code: output.code, stdout: decoder.decode(output.stdout), stderr: decoder.decode(output.stderr) };
}

function command(line: CommandLine, streams: "inherit" | "piped"): Deno.Command {
  const [program = "", ...args] = line.command;
  return new Deno.Command(program, {
    args,
    stdin: "null",
    stdout: streams,
    stderr: streams,
    ...(line.env === undefined ? {} : { env: { ...line.env } }),
    ...(line.cwd === undefined ? {} : { cwd: line.cwd }),
  });
}

function start(line: CommandLine, streams: "inherit" | "piped"): Deno.ChildProcess {
  return command(line, streams).spawn();
}

/** A terminal sends Ctrl-C to the child as well; SIGTERM comes to us alone, and the child must not outlive us. */
async function whileForwardingSignals(child: Deno.ChildProcess): Promise<number> {
  const forward = () => {
    try {
      child.kill("SIGTERM");
    } catch {
      // It has ended already; its status says how.
    }
  };
  const ignore = () => {};
  Deno.addSignalListener("SIGTERM", forward);
  Deno.addSignalListener("SIGINT", ignore);
  try {
    return (await child.status).code;
  } finally {
    Deno.removeSignalListener("SIGTERM", forward);
    Deno.removeSignalListener("SIGINT", ignore);
  }
}
