/** `worker-sidecar check`: every setting with its value and origin, the baked permissions, and what is missing. */
import { redactUrl } from "../runtime/redact.ts";
import { describeNeed, type Need } from "./grants.ts";
import type { BakedManifest } from "./manifest.ts";
import type { Origin, Settings } from "./settings.ts";
import { variables } from "./table.ts";
import { printable } from "./text.ts";
import type { Area, Shown, Variable } from "./variable.ts";

/** Result of a check: what to print, and 0 or 1. */
export interface CheckReport {
  readonly stdout: string;
  readonly exitCode: 0 | 1;
}

/** Writes the report. Secrets appear as `<set>`, URLs without user and password. */
export function checkReport(
  settings: Settings,
  manifest: BakedManifest | undefined,
  missing: readonly Need[],
): CheckReport {
  const lines = [...settingLines(settings), "", ...manifestLines(manifest), ""];
  for (const warning of settings.warnings) lines.push(`warning: ${warning}`);
  for (const need of missing) lines.push(`missing: ${describeNeed(need)}`);
  lines.push(
    missing.length === 0 ? "The settings can be used." : "The settings cannot be used with these permissions.",
  );
  return { stdout: lines.join("\n") + "\n", exitCode: missing.length === 0 ? 0 : 1 };
}

function settingLines(settings: Settings): string[] {
  const areas = new Map<Area, string[]>();
  for (const [name, row] of variables) {
    const lines = areas.get(row.area) ?? [];
    lines.push(`  ${name.padEnd(44)} ${valueText(row, settings)}  (${originText(settings.origins.get(name))})`);
    areas.set(row.area, lines);
  }
  return [...areas].flatMap(([area, lines], at) => [...(at === 0 ? [] : [""]), `${area}`, ...lines]);
}

/** Effective value with its unit, safe to print. */
export function valueText(row: Variable<unknown>, settings: Settings): string {
  const value = row.show(settings);
  if (isNothing(value)) return "-";
  if (row.hidden === "all") return "<set>";
  const text = typeof value === "boolean"
    ? (value ? "on" : "off")
    : Array.isArray(value)
    ? value.join(",")
    : `${value}`;
  const safe = printable(row.hidden === "userinfo" ? redactUrl(text) : text);
  return row.unit === undefined ? safe : `${safe} ${row.unit}`;
}

function isNothing(value: Shown): boolean {
  return value === undefined || value === "" || (Array.isArray(value) && value.length === 0);
}

function originText(origin: Origin | undefined): string {
  switch (origin?.kind) {
    case "environment":
      return `environment ${origin.name}`;
    case "flag":
      return `flag ${origin.flag}`;
    default:
      return "default";
  }
}

function manifestLines(manifest: BakedManifest | undefined): string[] {
  if (manifest === undefined) return ["Nothing is baked: the permissions are those of the command line."];
  const { profile, generic, target, version, grants } = manifest;
  return [
    `Baked permissions (version ${version}, profile ${profile}, ${generic ? "generic" : "strict"}, ${target}):`,
    ...grants.map((grant) => {
      const value = grant.value === true ? "all" : printable(grant.value);
      return `  ${grant.kind.padEnd(5)} ${value.padEnd(40)} ${grant.for}`;
    }),
  ];
}
