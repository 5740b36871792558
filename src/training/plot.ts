/**
 * The page at `/`: loss, correlation and versions as one drawing, made on the server, without scripts (online-training.md
 * names no such page; it is ours).
 */
import type { StatusBody } from "./status.ts";
import type { LossPoint } from "./training_history.ts";
import type { VersionMetadata } from "./version_metadata.ts";

/** What the page shows. */
export interface PlotData {
  readonly status: StatusBody;
  readonly losses: readonly LossPoint[];
  /** At most {@link SHOWN_VERSIONS}, newest last. */
  readonly versions: readonly VersionMetadata[];
}

const WIDTH = 760, HEIGHT = 220, LEFT = 60, RIGHT = 10, TOP = 16, BOTTOM = 28;
/** Versions on the page, the newest. */
export const SHOWN_VERSIONS = 30;

/** The whole page. */
export function renderPage(data: PlotData): string {
  const { status, versions } = data;
  const facts: [string, string][] = [
    ["Phase", status.phase],
    ["Samples", `${status.current_samples}`],
    ["Steps", `${status.step_count}`],
    ["Serving", status.active_version === "" ? "none" : status.active_version],
    ["Policy", status.policy],
    ["Newest", status.model_version || "none"],
  ];
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="10"><title>Online training: ${escape(status.phase)}</title>
<style>${STYLE}</style></head><body><main>
<h1>Online training</h1>
<dl>${facts.map(([name, value]) => `<div><dt>${name}</dt><dd>${escape(value)}</dd></div>`).join("")}</dl>
${status.note === "" ? "" : `<p class="note">${escape(status.note)}</p>`}
<h2>Loss by step</h2>${lossChart(data.losses)}
<h2>Correlation with the fixtures by version</h2>${plccChart(versions)}
<h2>Versions</h2>${table(versions, status.active_version)}
</main></body></html>
`;
}

const STYLE = `:root{color-scheme:light dark;--ink:#1d2730;--soft:#687684;--line:#2563a8;--paper:#fff;--grid:#d9dfe5}
@media(prefers-color-scheme:dark){:root{--ink:#e4e9ee;--soft:#9aa7b3;--line:#7fb2ef;--paper:#14191e;--grid:#303a43}}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:780px;margin:auto;padding:1rem}h1{font-size:1.4rem}h2{font-size:1rem;margin:1.5rem 0 .3rem}
dl{display:flex;flex-wrap:wrap;gap:.4rem 2rem;margin:0}dt{color:var(--soft);font-size:.8rem}dd{margin:0;font-weight:600}
svg{width:100%;height:auto}svg text{fill:var(--soft);font-size:12px}.note{color:#b3541e}
.axis{stroke:var(--grid)}.curve{fill:none;stroke:var(--line);stroke-width:2}
.stable{fill:#2e8b57}.unstable,.quarantined,.rolled_back{fill:#c0392b}.candidate{fill:#8a949e}
/* A wide table scrolls by itself; the page does not. */
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--grid)}
td.number{font-variant-numeric:tabular-nums}`;

function lossChart(points: readonly LossPoint[]): string {
  if (points.length === 0) return `<p>No step yet.</p>`;
  // Losses fall over orders of magnitude; the logarithm shows them all.
  const level = (loss: number) => Math.log10(Math.max(loss, 1e-9));
  const x = scale(points.map((point) => point.step), LEFT, WIDTH - RIGHT);
  const y = scale(points.map((point) => level(point.loss)), HEIGHT - BOTTOM, TOP);
  const path = points.map((point, i) => `${i === 0 ? "M" : "L"}${x.at(point.step)} ${y.at(level(point.loss))}`).join(
    "",
  );
  const last = points.at(-1) as LossPoint;
  return chart(
    "loss",
    `Loss by step, logarithmic, from ${short(points[0]?.loss ?? 0)} to ${short(last.loss)}`,
    axes(x, y, (value) => short(10 ** value)) + `<path class="curve" d="${path}"/>`,
  );
}

function plccChart(versions: readonly VersionMetadata[]): string {
  const judged = versions.filter((version) => version.gate?.plcc !== null && version.gate?.plcc !== undefined);
  if (judged.length === 0) return `<p>No version has been compared with fixtures.</p>`;
  const plcc = (version: VersionMetadata) => version.gate?.plcc ?? 0;
  const x = scale(judged.map((version) => version.version), LEFT, WIDTH - RIGHT);
  const y = scale(judged.map(plcc), HEIGHT - BOTTOM, TOP);
  const dots = judged.map((version) =>
    `<circle class="${version.state}" r="4" cx="${x.at(version.version)}" cy="${y.at(plcc(version))}">` +
    `<title>${escape(version.model_version)}: ${plcc(version).toFixed(5)}, ${version.state}</title></circle>`
  );
  return chart(
    "plcc",
    `Correlation of ${judged.length} versions`,
    axes(x, y, (value) => value.toFixed(4)) + dots.join(""),
  );
}

function table(versions: readonly VersionMetadata[], active: string): string {
  if (versions.length === 0) return `<p>No version yet.</p>`;
  const rows = versions.toReversed().map((version) =>
    `<tr><td>${escape(version.model_version)}${version.model_version === active ? " (serves)" : ""}</td>` +
    `<td>${version.state}</td><td class="number">${version.gate?.plcc?.toFixed(5) ?? ""}</td>` +
    `<td class="number">${version.samples_total}</td><td>${escape(version.created_at)}</td>` +
    `<td>${escape(version.reason)}</td></tr>`
  );
  const head = ["Version", "State", "PLCC", "Samples", "Created", "Why"].map((name) => `<th>${name}</th>`).join("");
  return `<div class="wide"><table><thead><tr>${head}</tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
}

interface Scale {
  readonly low: number;
  readonly high: number;
  at(value: number): string;
}

/** Maps values linearly to pixels; a single value lies in the middle. */
function scale(values: readonly number[], from: number, to: number): Scale {
  const low = Math.min(...values), high = Math.max(...values);
  const at = (value: number) => high === low ? (from + to) / 2 : from + (value - low) / (high - low) * (to - from);
  return { low, high, at: (value) => at(value).toFixed(1) };
}

function axes(x: Scale, y: Scale, label: (value: number) => string): string {
  const bottom = HEIGHT - BOTTOM;
  return `<path class="axis" fill="none" d="M${LEFT} ${TOP}V${bottom}H${WIDTH - RIGHT}"/>` +
    text(LEFT - 6, bottom, "end", label(y.low)) +
    (y.high === y.low ? "" : text(LEFT - 6, TOP + 8, "end", label(y.high))) +
    text(LEFT, HEIGHT - 8, "start", `${x.low}`) +
    (x.high === x.low ? "" : text(WIDTH - RIGHT, HEIGHT - 8, "end", `${x.high}`));
}

function text(x: number, y: number, anchor: "start" | "end", content: string): string {
  return `<text x="${x}" y="${y}" text-anchor="${anchor}">${escape(content)}</text>`;
}

function chart(id: string, description: string, content: string): string {
  return `<svg id="${id}" role="img" viewBox="0 0 ${WIDTH} ${HEIGHT}"><title>${
    escape(description)
  }</title>${content}</svg>`;
}

function short(value: number): string {
  return Number(value.toPrecision(3)).toString();
}

function escape(value: string): string {
  return value.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
