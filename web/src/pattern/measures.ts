/** Measures of a pattern of n tokens, as `Pattern.stats` defines them. */

import type { Pattern } from "./patterns";
import { keys, size } from "./row";

export interface Measures {
  pairs: number;
  layers: number; // hops after which every token has reached every other, ∞ if never
  diameter: number; // of the symmetric graph's largest component
  components: number;
  gap: number; // 1 - second eigenvalue of its random walk; NaN for one token
}

export function countPairs(pattern: Pattern, n: number): number {
  let total = 0;
  for (let i = 0; i < n; i++) total += size(pattern.row(i, n, n));
  return total;
}

/** The number of hops from `start` to each token, -1 where there is no path. */
export function hopsFrom(start: number, next: (i: number) => Iterable<number>, n: number): Int32Array {
  const hop = new Int32Array(n).fill(-1);
  hop[start] = 0;
  let frontier = [start];
  while (frontier.length) {
    const following: number[] = [];
    for (const i of frontier)
      for (const j of next(i))
        if (hop[j] < 0) {
          hop[j] = hop[i] + 1;
          following.push(j);
        }
    frontier = following;
  }
  return hop;
}

function largestComponent(links: number[][]): { members: number[]; count: number } {
  const n = links.length;
  const seen = new Uint8Array(n);
  let best: number[] = [];
  let count = 0;
  for (let start = 0; start < n; start++) {
    if (seen[start]) continue;
    count++;
    const hop = hopsFrom(start, (i) => links[i], n);
    const members: number[] = [];
    hop.forEach((h, i) => {
      if (h >= 0) {
        seen[i] = 1;
        members.push(i);
      }
    });
    if (members.length > best.length) best = members;
  }
  return { members: best, count };
}

/** Householder: a symmetric matrix (destroyed) as a tridiagonal one, diagonal and off-diagonal. */
function tridiagonal(a: Float64Array[]): { d: Float64Array; e: Float64Array } {
  const n = a.length;
  const d = new Float64Array(n);
  const e = new Float64Array(n);
  for (let k = 0; k < n - 1; k++) {
    d[k] = a[k][k];
    let norm = 0;
    for (let i = k + 1; i < n; i++) norm += a[i][k] ** 2;
    norm = Math.sqrt(norm);
    if (norm < 1e-300) continue;
    const alpha = a[k + 1][k] > 0 ? -norm : norm;
    const v = new Float64Array(n);
    for (let i = k + 1; i < n; i++) v[i] = a[i][k];
    v[k + 1] -= alpha;
    let vv = 0;
    for (let i = k + 1; i < n; i++) vv += v[i] ** 2;
    e[k + 1] = alpha;
    if (vv < 1e-300) continue;
    const w = new Float64Array(n);
    let vw = 0;
    for (let i = k + 1; i < n; i++) {
      const row = a[i];
      let sum = 0;
      for (let j = k + 1; j < n; j++) sum += row[j] * v[j];
      w[i] = (2 * sum) / vv;
      vw += v[i] * w[i];
    }
    for (let i = k + 1; i < n; i++) w[i] -= (vw / vv) * v[i];
    for (let i = k + 1; i < n; i++) {
      const row = a[i];
      for (let j = k + 1; j < n; j++) row[j] -= v[i] * w[j] + w[i] * v[j];
    }
  }
  d[n - 1] = a[n - 1][n - 1];
  return { d, e };
}

/** The k-th largest eigenvalue of a tridiagonal matrix, by bisection on Sturm counts. */
function eigenvalue(d: Float64Array, e: Float64Array, k: number): number {
  let low = -1.5;
  let high = 1.5;
  const n = d.length;
  for (let turn = 0; turn < 60; turn++) {
    const mid = (low + high) / 2;
    let above = 0; // eigenvalues larger than mid
    let q = 1;
    for (let i = 0; i < n; i++) {
      q = d[i] - mid - (i ? (e[i] * e[i]) / (q || 1e-300) : 0);
      if (q > 0) above++;
    }
    if (above >= k) low = mid;
    else high = mid;
  }
  return (low + high) / 2;
}

export const MOST_MEASURED = 512;

export function measures(pattern: Pattern, n: number): Measures {
  const ahead = Array.from({ length: n }, (_, i) => keys(pattern.row(i, n, n)));
  const pairs = ahead.reduce((sum, row) => sum + row.length, 0);
  let layers = 0;
  for (let i = 0; i < n && layers < Number.POSITIVE_INFINITY; i++) {
    const hop = hopsFrom(i, (j) => ahead[j], n);
    for (const h of hop) layers = h < 0 ? Number.POSITIVE_INFINITY : Math.max(layers, h);
  }
  const links: Set<number>[] = Array.from({ length: n }, () => new Set());
  ahead.forEach((row, i) =>
    row.forEach((j) => {
      if (i !== j) {
        links[i].add(j);
        links[j].add(i);
      }
    }),
  );
  const lists = links.map((s) => [...s]);
  const { members, count } = largestComponent(lists);
  let diameter = 0;
  for (const i of members) for (const h of hopsFrom(i, (j) => lists[j], n)) diameter = Math.max(diameter, h);
  return { pairs, layers, diameter, components: count, gap: gapOf(lists, members) };
}

function gapOf(lists: number[][], members: number[]): number {
  if (members.length < 2) return Number.NaN;
  const place = new Map(members.map((i, k) => [i, k]));
  const a = members.map((i) => {
    const row = new Float64Array(members.length);
    for (const j of lists[i]) row[place.get(j) as number] = 1 / Math.sqrt(lists[i].length * lists[j].length);
    return row;
  });
  const { d, e } = tridiagonal(a);
  return Math.max(1 - eigenvalue(d, e, 2), 0);
}
