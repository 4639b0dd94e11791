/** The graph of one head: tokens on a circle, an arrow for each edge, as wide as its weight. */

import type { Attention, Edge } from "../attention";
import type { Theme } from "../colours";
import { fit, shown } from "../dom";

const MOST_EDGES = 4000;
const LABELLED = 96; // tokens whose labels all fit
const DOTTED = 8192;
const UPRIGHT = 28; // and stand upright

export interface GraphPicture {
  attention: Attention;
  layer: number;
  head: number;
  threshold: number;
  lit: number | null;
  hops: Int32Array | null; // hop of each token
  step: number; // hops shown
}

interface Circle {
  x: number;
  y: number;
  radius: number;
}

const angle = (i: number, n: number): number => (2 * Math.PI * i) / n - Math.PI / 2;

function place(c: Circle, i: number, n: number): [number, number] {
  return [c.x + c.radius * Math.cos(angle(i, n)), c.y + c.radius * Math.sin(angle(i, n))];
}

/** The control point of a curve: edges of neighbours stay near the rim, others pass the middle. */
function bend(c: Circle, x: number, y: number, u: number, v: number): [number, number] {
  const far = Math.hypot(u - x, v - y) / (2 * c.radius);
  const share = (0.88 - 0.5 * far) / 2;
  return [c.x + share * (x + u - 2 * c.x), c.y + share * (y + v - 2 * c.y)];
}

function curve(pen: CanvasRenderingContext2D, c: Circle, e: Edge, n: number): void {
  const [x, y] = place(c, e.query, n);
  pen.beginPath();
  if (e.query === e.key) {
    const a = angle(e.query, n);
    const r = Math.min(9, c.radius / 8);
    pen.arc(x - r * Math.cos(a), y - r * Math.sin(a), r, 0, 2 * Math.PI);
  } else {
    const [u, v] = place(c, e.key, n);
    pen.moveTo(x, y);
    pen.quadraticCurveTo(...bend(c, x, y, u, v), u, v);
  }
  pen.stroke();
}

/** A small head on the key's side of a curve. */
function arrow(pen: CanvasRenderingContext2D, c: Circle, e: Edge, n: number): void {
  if (e.query === e.key) return;
  const [x, y] = place(c, e.query, n);
  const [u, v] = place(c, e.key, n);
  const [cx, cy] = bend(c, x, y, u, v);
  const way = Math.atan2(v - cy, u - cx);
  const [tx, ty] = [u - 6 * Math.cos(way), v - 6 * Math.sin(way)];
  pen.beginPath();
  pen.moveTo(tx, ty);
  for (const turn of [2.6, -2.6]) pen.lineTo(tx + 9 * Math.cos(way + turn), ty + 9 * Math.sin(way + turn));
  pen.closePath();
  pen.fill();
}

export function drawGraph(canvas: HTMLCanvasElement, theme: Theme, p: GraphPicture): void {
  const { pen, width, height } = fit(canvas);
  const n = p.attention.n;
  const margin = n <= UPRIGHT ? 48 : n <= LABELLED ? 92 : 60;
  const c: Circle = { x: width / 2, y: height / 2, radius: Math.max(Math.min(width, height) / 2 - margin, 40) };
  pen.fillStyle = theme.ground;
  pen.fillRect(0, 0, width, height);
  const edges = n <= 4096 ? p.attention.edges(p.layer, p.head, p.threshold, MOST_EDGES) : litEdges(p);
  canvas.dataset.edges = String(edges.length);
  canvas.dataset.circle = JSON.stringify({ ...c, n });
  if (p.hops) drawHops(pen, theme, c, edges, p, n);
  else drawEdges(pen, theme, c, edges, p, n);
  drawTokens(pen, theme, c, edges, p, n);
}

/** Of very long texts only the edges of one token. */
function litEdges(p: GraphPicture): Edge[] {
  if (p.lit === null) return [];
  const near = [...p.attention.row(p.layer, p.head, p.lit), ...p.attention.into(p.layer, p.head, p.lit)];
  return near.filter((e) => e.weight >= p.threshold).slice(0, MOST_EDGES);
}

function drawEdges(pen: CanvasRenderingContext2D, theme: Theme, c: Circle, edges: Edge[], p: GraphPicture, n: number): void {
  const widest = Math.min(6, (2 * Math.PI * c.radius) / n + 1);
  const thin = Math.min(1, 24 / Math.sqrt(Math.max(edges.length, 1)));
  for (const e of edges) {
    const out = e.query === p.lit;
    const into = e.key === p.lit && !out;
    const apart = p.lit !== null && !out && !into;
    pen.globalAlpha = apart ? 0.05 : p.lit === null ? (0.12 + 0.8 * e.weight) * Math.max(thin, 0.35) : 0.35 + 0.65 * e.weight;
    pen.strokeStyle = pen.fillStyle = into ? theme.into : out ? theme.out : theme.faint;
    pen.lineWidth = 0.6 + widest * e.weight;
    pen.setLineDash(into ? [5, 4] : []);
    curve(pen, c, e, n);
    if (out || into) arrow(pen, c, e, n);
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

function drawHops(pen: CanvasRenderingContext2D, theme: Theme, c: Circle, edges: Edge[], p: GraphPicture, n: number): void {
  const hops = p.hops as Int32Array;
  for (const e of edges) {
    const hop = hops[e.key];
    const follows = hop > 0 && hop <= p.step && hops[e.query] === hop - 1;
    pen.globalAlpha = follows ? 0.85 : 0.04;
    pen.strokeStyle = pen.fillStyle = follows ? theme.hops[hop % theme.hops.length] : theme.faint;
    pen.lineWidth = 0.6 + 5 * e.weight;
    curve(pen, c, e, n);
    if (follows) arrow(pen, c, e, n);
  }
  pen.globalAlpha = 1;
}

function drawTokens(pen: CanvasRenderingContext2D, theme: Theme, c: Circle, edges: Edge[], p: GraphPicture, n: number): void {
  const near = new Map<number, number>();
  if (p.lit !== null && !p.hops) for (const e of edges) if (e.query === p.lit || e.key === p.lit) near.set(e.query === p.lit ? e.key : e.query, e.weight);
  const every = Math.ceil(n / LABELLED);
  const dot = n <= LABELLED ? 4 : Math.max(1, Math.min(4, (2 * c.radius) / n));
  pen.textBaseline = "middle";
  const drawn = n <= DOTTED ? Array.from({ length: n }, (_, i) => i) : rim(pen, theme, c, n, every, p.lit, near);
  for (const i of drawn) {
    const [x, y] = place(c, i, n);
    const hop = p.hops ? p.hops[i] : -1;
    const reached = hop >= 0 && hop <= p.step;
    pen.fillStyle = i === p.lit ? theme.out : reached ? theme.hops[hop % theme.hops.length] : theme.faint;
    pen.beginPath();
    pen.arc(x, y, i === p.lit || reached ? dot + 2.5 : dot, 0, 2 * Math.PI);
    pen.fill();
    if ((i % every === 0 && n - i >= every) || i === p.lit || (near.has(i) && near.size < 40)) label(pen, theme, c, i, n, p, near, reached);
  }
}

/** Where tokens are too many for dots: a circle, and the tokens that have labels. */
function rim(pen: CanvasRenderingContext2D, theme: Theme, c: Circle, n: number, every: number, lit: number | null, near: Map<number, number>): number[] {
  pen.strokeStyle = theme.faint;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.arc(c.x, c.y, c.radius, 0, 2 * Math.PI);
  pen.stroke();
  const spaced = Array.from({ length: Math.ceil(n / every) }, (_, k) => k * every);
  return [...new Set([...spaced, ...(near.size < 4096 ? near.keys() : []), ...(lit === null ? [] : [lit])])];
}

function label(pen: CanvasRenderingContext2D, theme: Theme, c: Circle, i: number, n: number, p: GraphPicture, near: Map<number, number>, reached: boolean): void {
  const a = angle(i, n);
  const strong = i === p.lit || near.has(i) || reached;
  const quiet = (p.lit !== null || p.hops !== null) && !strong;
  pen.save();
  pen.translate(c.x + (c.radius + 12) * Math.cos(a), c.y + (c.radius + 12) * Math.sin(a));
  const left = Math.cos(a) < -1e-9;
  if (n > UPRIGHT) pen.rotate(left ? a + Math.PI : a);
  pen.textAlign = n <= UPRIGHT && Math.abs(Math.cos(a)) < 0.1 ? "center" : left ? "right" : "left";
  pen.font = `${strong ? "600 " : ""}${n <= 48 ? 13 : n <= LABELLED ? 11 : 10}px system-ui, sans-serif`;
  pen.globalAlpha = quiet ? 0.35 : 1;
  pen.fillStyle = theme.ink;
  const hop = reached && p.hops ? ` ${p.hops[i]}` : "";
  pen.fillText(shown(p.attention.token(i), 14) + hop, 0, 0);
  pen.restore();
}

/** The token nearest to a point of the canvas, if it is near the circle. */
export function tokenAt(canvas: HTMLCanvasElement, x: number, y: number): number | null {
  if (!canvas.dataset.circle) return null;
  const c = JSON.parse(canvas.dataset.circle) as Circle & { n: number };
  const far = Math.hypot(x - c.x, y - c.y);
  if (far < c.radius * 0.72 || far > c.radius + 110) return null;
  const turn = (Math.atan2(y - c.y, x - c.x) + Math.PI / 2 + 4 * Math.PI) % (2 * Math.PI);
  return Math.round((turn * c.n) / (2 * Math.PI)) % c.n;
}
