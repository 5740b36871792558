/** The documentation of the settings, from the one table that also reads them. */
import { passThrough } from "../../src/settings/pass_through.ts";
import { variables } from "../../src/settings/table.ts";
import type { Area, Variable } from "../../src/settings/variable.ts";
import { TRAINING_SETTINGS, type TrainingSetting } from "../../src/training/settings.ts";

/** Headings in the order of the document. */
const AREAS: Readonly<Record<Area, string>> = {
  lane: "The lane",
  ingest: "Where work comes from",
  nats: "The broker",
  pull: "Pulling",
  ipc: "The backend's sockets",
  dispatch: "Preparing and running",
  scheduler: "Scheduling",
  batcher: "Batches",
  batch_time: "Batch times",
  admission: "Pool admission",
  deadlines: "Deadlines",
  payload: "Payload store",
  config: "Live configuration",
  probes: "Probes and heartbeat",
  health: "Health messages",
  telemetry: "Telemetry",
  log: "Logging",
  debug: "Looking inside",
};

/** The whole document, in Markdown. */
export function settingsText(): string {
  const lines = [
    "# Settings",
    "",
    "Made from the table in `src/settings/` by `deno task settings`; change it there. A flag wins over its variable. A variable",
    "with a flag is checked strictly: a value that cannot be used stops the start. So is one that is marked *ours* (the reference",
    "does not have it). Any other falls back to its default, with a warning. `worker-sidecar check` prints what is in force.",
  ];
  for (const [area, heading] of Object.entries(AREAS)) {
    const rows = variables.filter(([, row]) => row.area === area);
    const passed = passThrough.filter((row) => row.area === area);
    if (rows.length === 0 && passed.length === 0) continue;
    lines.push(
      "",
      `## ${heading}`,
      "",
      "| variable | flag | type | default | meaning |",
      "| --- | --- | --- | --- | --- |",
    );
    for (const [name, row] of rows) lines.push(settingRow(name, row));
    for (const { name, doc } of passed) lines.push(tableRow([`\`${name}\``, "", "handed on", "", `${doc}.`]));
  }
  lines.push(
    "",
    "## The online trainer",
    "",
    "The variables of `worker-sidecar train`; `feedback` reads the socket alone. Empty counts as unset, and a value that cannot be",
    "used always stops the start. [training.md](training.md) explains what they mean together.",
    "",
    "| variable | type | default | meaning |",
    "| --- | --- | --- | --- |",
    ...Object.values(TRAINING_SETTINGS).map(trainingRow),
  );
  return `${lines.join("\n")}\n`;
}

function trainingRow({ name, type, unit, default: fallback, range, doc }: TrainingSetting): string {
  const cells = [
    `\`${name}\``,
    unit === undefined ? type : `${type}, ${unit}`,
    fallback === "" ? "" : `\`${fallback}\``,
  ];
  return tableRow([...cells, `${doc} (${range}).`]);
}

function settingRow(name: string, row: Variable<unknown>): string {
  const notes = [
    row.range,
    row.required === true ? "required" : undefined,
    row.ours === true ? "*ours*" : undefined,
    row.hidden === "all" ? "never printed" : undefined,
    row.hidden === "userinfo" ? "printed without user and password" : undefined,
    row.later === true ? "not used yet" : undefined,
  ].filter((note) => note !== undefined);
  const meaning = `${row.doc}${notes.length > 0 ? ` (${notes.join("; ")})` : ""}.`;
  const type = row.unit === undefined ? row.type : `${row.type}, ${row.unit}`;
  const fallback = row.fallbackText === "" ? "" : `\`${row.fallbackText}\``;
  return tableRow([`\`${name}\``, row.flag === undefined ? "" : `\`${row.flag}\``, type, fallback, meaning]);
}

function tableRow(cells: readonly string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
}

/** Areas that the document has no heading for; there must be none. */
export function areasWithoutHeading(): string[] {
  return [...new Set(variables.map(([, row]) => row.area))].filter((area) => !Object.hasOwn(AREAS, area));
}
