/** The settlement table of the code as Markdown, for docs/operations.md. */
import type { SettlementAction, SettlementRule, SettlementStage } from "../../src/dispatch/settlement_rule.ts";
import { SETTLEMENT_RULES } from "../../src/dispatch/settlement_rules.ts";

const BEGIN = "<!-- settlement table: written by `deno task operations` -->";
const END = "<!-- end of the settlement table -->";

const STAGES: readonly { readonly stage: SettlementStage; readonly title: string }[] = [
  { stage: "intake", title: "Intake" },
  { stage: "model group", title: "Waiting for the model" },
  { stage: "execution", title: "Preparation and execution" },
  { stage: "generation", title: "Generation" },
];

const DELAYS = {
  base: "`SIE_NAK_DELAY_S`",
  hand_over: "100 ms",
  double_base: "twice `SIE_NAK_DELAY_S`, at most 15 s",
  hint_or_base: "what the backend asks for, else `SIE_NAK_DELAY_S`",
} as const;

/** The whole document with its table brought up to date. Throws when it has no place for one. */
export function withSettlementTable(document: string): string {
  const begin = document.indexOf(BEGIN), end = document.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`the document has no place between "${BEGIN}" and "${END}"`);
  return `${document.slice(0, begin + BEGIN.length)}\n\n${settlementTable()}\n${document.slice(end)}`;
}

/** One table per part of the path. */
export function settlementTable(): string {
  const rules = Object.entries(SETTLEMENT_RULES) as [string, SettlementRule][];
  return STAGES.map(({ stage, title }) => {
    const rows = rules.filter(([, rule]) => rule.stage === stage).map(([name, rule]) => row(name, rule));
    return `### ${title}\n\n| situation | when | settlement | reason | published | what to do |\n| --- | --- | --- | --- | --- | --- |\n${
      rows.join("\n")
    }\n`;
  }).join("\n");
}

function row(name: string, { when, action, published, advice }: SettlementRule): string {
  const cells = [`\`${name}\``, when, settlement(action), reason(action), published, advice === "" ? "–" : advice];
  return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
}

function settlement(action: SettlementAction): string {
  switch (action.kind) {
    case "ack":
      return "ACK";
    case "nak":
      return `NAK, ${DELAYS[action.delay]}`;
    case "progress":
      return "progress";
    case "leave":
      return "none: it comes back after the ack wait";
    case "ack_published":
      return action.otherwise === "leave"
        ? "ACK when published; else none, it comes back after the ack wait"
        : `ACK when published; else NAK, ${DELAYS[action.otherwise]}`;
  }
}

function reason(action: SettlementAction): string {
  if (action.kind === "progress") return "`none`";
  return action.kind === "leave" ? "–" : `\`${action.reason}\``;
}
