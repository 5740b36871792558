/** Circles in a graph of imports. */

/**
 * The strongly connected parts with more than one node, and nodes that import themselves; each as one circle that really
 * runs along edges, starting at its alphabetically first node. (Tarjan's algorithm finds the parts.)
 */
export function findCycles(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  return stronglyConnected(graph)
    .filter((part) => part.length > 1 || (graph.get(part[0] ?? "") ?? []).includes(part[0] ?? ""))
    .map((part) => shortestCircle(graph, new Set(part), [...part].sort()[0] ?? ""))
    .sort((a, b) => (a[0] ?? "") < (b[0] ?? "") ? -1 : 1);
}

function stronglyConnected(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const parts: string[][] = [];
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const onStack = new Set<string>();
  const visit = (node: string) => {
    const number = order.size;
    order.set(node, number);
    low.set(node, number);
    stack.push(node);
    onStack.add(node);
    for (const next of graph.get(node) ?? []) {
      if (!order.has(next)) visit(next);
      else if (!onStack.has(next)) continue;
      low.set(node, Math.min(low.get(node) ?? number, low.get(next) ?? number));
    }
    if (low.get(node) !== number) return;
    const part: string[] = [];
    let member: string | undefined;
    do {
      member = stack.pop();
      if (member === undefined) break;
      onStack.delete(member);
      part.push(member);
    } while (member !== node);
    parts.push(part);
  };
  for (const node of graph.keys()) if (!order.has(node)) visit(node);
  return parts;
}

/** Breadth first from `start` back to it, inside one part. */
function shortestCircle(
  graph: ReadonlyMap<string, readonly string[]>,
  part: ReadonlySet<string>,
  start: string,
): string[] {
  const paths: string[][] = [[start]];
  const seen = new Set<string>();
  for (let path = paths.shift(); path !== undefined; path = paths.shift()) {
    for (const next of graph.get(path.at(-1) ?? "") ?? []) {
      if (next === start) return path;
      if (!part.has(next) || seen.has(next)) continue;
      seen.add(next);
      paths.push([...path, next]);
    }
  }
  return [...part];
}
