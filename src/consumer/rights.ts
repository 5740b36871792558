/** The rights that the worker's user needs at the broker (spec/queue.md 1.7), to name the one that is missing. Pure. */

/** The rights as they are granted, by the beginning of the subjects they cover. */
const RIGHTS: readonly { readonly start: string; readonly grant: string }[] = [
  { start: "$JS.API.STREAM.INFO.", grant: "$JS.API.STREAM.INFO.*" },
  { start: "$JS.API.STREAM.CREATE.", grant: "$JS.API.STREAM.CREATE.*" },
  { start: "$JS.API.STREAM.UPDATE.", grant: "$JS.API.STREAM.UPDATE.*" },
  { start: "$JS.API.CONSUMER.LIST.", grant: "$JS.API.CONSUMER.LIST.*" },
  { start: "$JS.API.CONSUMER.INFO.", grant: "$JS.API.CONSUMER.INFO.*.*" },
  { start: "$JS.API.CONSUMER.CREATE.", grant: "$JS.API.CONSUMER.CREATE.*.>" },
  { start: "$JS.API.CONSUMER.DELETE.", grant: "$JS.API.CONSUMER.DELETE.*.*" },
  { start: "$JS.API.CONSUMER.MSG.NEXT.", grant: "$JS.API.CONSUMER.MSG.NEXT.*.*" },
  { start: "$JS.ACK.", grant: "$JS.ACK.>" },
  { start: "_INBOX_WORKER.", grant: "_INBOX_WORKER.>" },
  { start: "_INBOX.", grant: "_INBOX.>" },
];

/** The right that would cover a subject and its like; undefined for one that a worker has no business with. */
export function grantFor(subject: string): string | undefined {
  return RIGHTS.find(({ start }) => subject.startsWith(start))?.grant;
}

/** A refused subject together with the right that would cover it and its like. */
export function rightFor(subject: string): string {
  const grant = grantFor(subject);
  return grant === undefined ? `'${subject}'` : `'${subject}' (the worker's user needs '${grant}')`;
}
