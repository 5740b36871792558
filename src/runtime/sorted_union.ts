/** Union of lists in the order of their UTF-8 bytes, which the peers sort by, without duplicates. */
export function sortedUnion(lists: Iterable<readonly string[]>): string[] {
  const all = new Set<string>();
  for (const list of lists) for (const entry of list) all.add(entry);
  return [...all].sort(byCodePoint);
}

/** JavaScript's own order, by UTF-16 units, differs beyond the basic plane. */
function byCodePoint(a: string, b: string): number {
  const left = [...a], right = [...b];
  for (let at = 0; at < left.length && at < right.length; at++) {
    const difference = (left[at]?.codePointAt(0) ?? 0) - (right[at]?.codePointAt(0) ?? 0);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}
