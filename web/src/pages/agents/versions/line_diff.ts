/** The difference of two texts by lines. */

export interface LineRun {
  kind: "same" | "removed" | "added";
  lines: readonly string[];
}

/** Above this many pairs of lines a comparison would hold up the page. */
const MOST_PAIRS = 4_000_000;

/** The runs of lines that lead from `before` to `after`, by a longest common subsequence. `null`: the texts are too
 * long for it. */
export function lineDiff(before: string, after: string): readonly LineRun[] | null {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  if (x.length * y.length > MOST_PAIRS) return null;
  return merged([
    { kind: "same", lines: a.slice(0, start) },
    ...middle(x, y),
    { kind: "same", lines: a.slice(a.length - end) },
  ]);
}

function middle(x: readonly string[], y: readonly string[]): LineRun[] {
  const width = y.length + 1;
  // common[i * width + j]: how many lines x from i on and y from j on have in common
  const common = new Uint32Array((x.length + 1) * width);
  const at = (i: number, j: number) => common[i * width + j] ?? 0;
  for (let i = x.length - 1; i >= 0; i -= 1) {
    for (let j = y.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = x[i] === y[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const runs: LineRun[] = [];
  let [i, j] = [0, 0];
  while (i < x.length || j < y.length) {
    const [left, right] = [x[i], y[j]];
    if (left !== undefined && left === right) {
      runs.push({ kind: "same", lines: [left] });
      i += 1;
      j += 1;
    } else if (left !== undefined && (right === undefined || at(i + 1, j) >= at(i, j + 1))) {
      runs.push({ kind: "removed", lines: [left] });
      i += 1;
    } else if (right !== undefined) {
      runs.push({ kind: "added", lines: [right] });
      j += 1;
    }
  }
  return runs;
}

function merged(runs: readonly LineRun[]): LineRun[] {
  const found: LineRun[] = [];
  for (const { kind, lines } of runs) {
    const last = found.at(-1);
    if (lines.length === 0) continue;
    if (last?.kind === kind) found[found.length - 1] = { kind, lines: [...last.lines, ...lines] };
    else found.push({ kind, lines });
  }
  return found;
}
