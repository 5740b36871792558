/** Compares the table of our IPC messages with the types of the installed backend. */
import type { Struct } from "../../src/wire/ipc/struct.ts";

/** One field of the peer: name, type in the words of our table, and its default. */
type PeerField = readonly [
  name: string,
  type: string,
  fallback: { readonly required: true } | { readonly value: unknown },
];

/** What `tests/peers/dump_ipc_types.py` prints. */
export interface PeerTypes {
  readonly version: number;
  readonly structs: Readonly<Record<string, readonly PeerField[]>>;
  readonly methods: readonly string[];
}

/** Our side of the comparison. */
export interface OurTypes {
  readonly version: number;
  readonly structs: readonly Pick<Struct, "name" | "fields">[];
  readonly methods: readonly string[];
}

/** A difference that is meant. `what` is the difference as it is reported. */
export interface Allowance {
  readonly what: string;
  readonly reason: string;
}

/**
 * The differences between both sides that no allowance covers, and the allowances that cover none: those have become untrue.
 */
export function compareTypes(ours: OurTypes, peer: PeerTypes, allowed: readonly Allowance[]): string[] {
  const differences = [
    ...ours.version === peer.version ? [] : [`version: ours ${ours.version}, peer ${peer.version}`],
    ...compareNames("method", ours.methods, peer.methods),
    ...compareNames("message", ours.structs.map((struct) => struct.name), Object.keys(peer.structs)),
    ...ours.structs.flatMap((struct) => compareFields(struct, peer.structs[struct.name] ?? [])),
  ];
  const unexpected = differences.filter((what) => !allowed.some((allowance) => allowance.what === what));
  const untrue = allowed.filter((allowance) => !differences.includes(allowance.what));
  return [...unexpected, ...untrue.map(({ what }) => `no longer true: ${what}`)];
}

function compareNames(kind: string, ours: readonly string[], peer: readonly string[]): string[] {
  return [
    ...ours.filter((name) => !peer.includes(name)).map((name) => `${kind} ${name}: only ours`),
    ...peer.filter((name) => !ours.includes(name)).map((name) => `${kind} ${name}: only the peer's`),
  ];
}

function compareFields({ name, fields }: OurTypes["structs"][number], peer: readonly PeerField[]): string[] {
  if (peer.length === 0) return [];
  const names = compareNames(`field of ${name}:`, Object.keys(fields), peer.map(([field]) => field));
  const details = peer.flatMap(([field, type, fallback]) => {
    const own = fields[field];
    if (own === undefined) return [];
    const found: string[] = [];
    if (own.type !== type) found.push(`type of ${name}.${field}: ours ${own.type}, peer ${type}`);
    const mine = own.fallback === undefined ? "required" : JSON.stringify(own.fallback);
    const theirs = "required" in fallback ? "required" : JSON.stringify(fallback.value);
    if (mine !== theirs) found.push(`default of ${name}.${field}: ours ${mine}, peer ${theirs}`);
    return found;
  });
  return [...names, ...details];
}
