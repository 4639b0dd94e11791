/** The adjacency map of one head: a row for each query, a column for each key; it zooms and pans. */

import type { Attention } from "../attention";
import { css, shade, type Theme } from "../colours";
import { fit, shown } from "../dom";
import { size } from "../pattern/row";

export interface Camera {
  zoom: number; // 1 shows everything
  x: number; // of the first key shown, as a share of all
  y: number;
}
export interface MapPicture {
  attention: Attention;
  layer: number;
  head: number;
  threshold: number;
  lit: number | null;
  cell: [number, number] | null; // query and key under the pointer
  camera: Camera;
  title?: string;
}
interface Frame {
  left: number;
  top: number;
  side: number; // of the square, in pixels
  unit: number; // pixels of a token
  x: number; // first key shown, may be a fraction
  y: number;
  n: number;
}

export const home = (): Camera => ({ zoom: 1, x: 0, y: 0 });

export function zoomed(camera: Camera, factor: number, n: number, atX = 0.5, atY = 0.5): Camera {
  const zoom = Math.min(Math.max(camera.zoom * factor, 1), Math.max(n / 8, 1));
  return clamped({ zoom, x: camera.x + atX / camera.zoom - atX / zoom, y: camera.y + atY / camera.zoom - atY / zoom });
}

export function clamped(camera: Camera): Camera {
  const most = 1 - 1 / camera.zoom;
  return { zoom: camera.zoom, x: Math.min(Math.max(camera.x, 0), most), y: Math.min(Math.max(camera.y, 0), most) };
}

function frameOf(width: number, height: number, p: MapPicture): Frame {
  const n = p.attention.n;
  const top = 84;
  const side = Math.max(Math.min(width - 108, height - top - 12), 40);
  const left = 96 + Math.max(0, Math.floor((width - 108 - side) / 2));
  return { left, top, side, unit: (side * p.camera.zoom) / n, x: p.camera.x * n, y: p.camera.y * n, n };
}

export function drawMap(canvas: HTMLCanvasElement, theme: Theme, p: MapPicture): void {
  const { pen, width, height } = fit(canvas);
  const f = frameOf(width, height, p);
  canvas.dataset.frame = JSON.stringify(f);
  pen.fillStyle = theme.ground;
  pen.fillRect(0, 0, width, height);
  pen.save();
  pen.beginPath();
  pen.rect(f.left, f.top, f.side, f.side);
  pen.clip();
  pen.fillStyle = css(theme.scale[0]);
  pen.fillRect(f.left, f.top, f.side, f.side);
  if (p.attention.rule) drawRule(pen, theme, f, p);
  else {
    if (p.attention.tiles) {
      pen.globalAlpha = f.unit < 0.5 ? 1 : 0.15; // sums of tiles behind weights of edges
      drawTiles(pen, theme, f, p);
      pen.globalAlpha = 1;
    }
    if (!p.attention.tiles || f.unit >= 0.5) drawCells(pen, theme, f, p);
  }
  drawCross(pen, theme, f, p);
  pen.restore();
  pen.strokeStyle = theme.line;
  pen.lineWidth = 1;
  pen.strokeRect(f.left - 0.5, f.top - 0.5, f.side + 1, f.side + 1);
  drawLabels(pen, theme, f, p);
  if (!p.title) return;
  pen.textAlign = "left";
  pen.font = "600 13px system-ui, sans-serif";
  pen.fillText(shown(p.title, 60), f.left, 14, f.side);
}

const inView = (f: Frame, i: number, first: number): boolean => i + 1 > first && i < first + f.side / f.unit;

function drawCells(pen: CanvasRenderingContext2D, theme: Theme, f: Frame, p: MapPicture): void {
  const gap = f.unit >= 8 ? 1 : 0;
  const cell = Math.max(f.unit - gap, 1);
  p.attention.forEach(p.layer, p.head, (i, j, weight) => {
    if (weight < p.threshold || !inView(f, i, f.y) || !inView(f, j, f.x)) return;
    pen.fillStyle = css(shade(theme, weight));
    pen.fillRect(f.left + (j - f.x) * f.unit, f.top + (i - f.y) * f.unit, cell, cell);
  });
}

function drawTiles(pen: CanvasRenderingContext2D, theme: Theme, f: Frame, p: MapPicture): void {
  const tiles = p.attention.header.tiles as { g: number; size: number };
  const base = p.attention.numberOf(p.layer, p.head) * tiles.g * tiles.g;
  const data = p.attention.tiles as Uint8Array;
  const side = tiles.size * f.unit;
  for (let a = 0; a < tiles.g; a++) {
    const y = f.top + (a * tiles.size - f.y) * f.unit;
    if (y + side < f.top || y > f.top + f.side) continue;
    for (let b = 0; b < tiles.g; b++) {
      const q = data[base + a * tiles.g + b];
      if (!q) continue;
      pen.fillStyle = css(shade(theme, (q / 255) ** 2));
      pen.fillRect(f.left + (b * tiles.size - f.x) * f.unit, y, Math.max(side, 1), Math.max(side, 1));
    }
  }
}

/** A pattern from its rule: where a pixel is many tokens, the row in its middle is drawn. */
function drawRule(pen: CanvasRenderingContext2D, theme: Theme, f: Frame, p: MapPicture): void {
  const rule = p.attention.rule;
  if (!rule) return;
  const high = Math.max(f.unit, 1);
  const rows = Math.min(Math.ceil(f.side / high), f.n);
  const gap = f.unit >= 8 ? 1 : 0;
  for (let r = 0; r <= rows; r++) {
    const i = f.unit >= 1 ? Math.floor(f.y) + r : Math.floor(f.y + (r + 0.5) / f.unit);
    if (i >= f.n) break;
    const y = f.unit >= 1 ? f.top + (i - f.y) * f.unit : f.top + r;
    const row = rule.row(i, f.n, f.n);
    const weight = f.n > 512 ? 0.4 : 1 / Math.max(size(row), 1);
    pen.fillStyle = css(shade(theme, weight));
    for (const run of row) {
      const [from, to] = [Math.max(run.start, Math.floor(f.x)), Math.min(run.stop, Math.ceil(f.x + f.side / f.unit))];
      if (from >= to) continue;
      if (run.step === 1 && gap === 0) pen.fillRect(f.left + (from - f.x) * f.unit, y, Math.max((to - from) * f.unit, 1), high);
      else {
        const step = Math.max(run.step, run.step * Math.ceil(1 / (f.unit * run.step)));
        const first = run.start + Math.ceil((from - run.start) / run.step) * run.step;
        for (let j = first; j < to; j += step) pen.fillRect(f.left + (j - f.x) * f.unit, y, Math.max(f.unit - gap, 1), high - gap);
      }
    }
  }
}

function drawCross(pen: CanvasRenderingContext2D, theme: Theme, f: Frame, p: MapPicture): void {
  const [query, key] = p.cell ?? [p.lit, p.lit];
  const thick = Math.max(f.unit, 2);
  pen.lineWidth = 2;
  if (query !== null) {
    pen.strokeStyle = theme.out;
    pen.strokeRect(f.left - 2, f.top + (query - f.y) * f.unit, f.side + 4, thick);
  }
  if (key !== null) {
    pen.strokeStyle = theme.into;
    pen.setLineDash([5, 4]);
    pen.strokeRect(f.left + (key - f.x) * f.unit, f.top - 2, thick, f.side + 4);
    pen.setLineDash([]);
  }
}

function drawLabels(pen: CanvasRenderingContext2D, theme: Theme, f: Frame, p: MapPicture): void {
  const every = Math.max(Math.ceil(13 / f.unit), 1);
  pen.fillStyle = theme.ink;
  pen.font = `${Math.min(12, Math.max(10, f.unit * 0.62))}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  const last = f.side / f.unit;
  for (let k = 0; k * every <= last; k++) {
    const i = Math.ceil(f.y / every) * every + k * every;
    const y = f.top + (i - f.y + 0.5) * f.unit;
    if (i < f.n && y < f.top + f.side) {
      pen.textAlign = "right";
      pen.fillText(shown(p.attention.token(i), 13), f.left - 6, y);
    }
    const j = Math.ceil(f.x / every) * every + k * every;
    const x = f.left + (j - f.x + 0.5) * f.unit;
    if (j < f.n && x < f.left + f.side) {
      pen.save();
      pen.translate(x, f.top - 7);
      pen.rotate(-Math.PI / 3);
      pen.textAlign = "left";
      pen.fillText(shown(p.attention.token(j), 12), 0, 0);
      pen.restore();
    }
  }
}

/** The pair under a point of the canvas. */
export function cellAt(canvas: HTMLCanvasElement, x: number, y: number): [number, number] | null {
  if (!canvas.dataset.frame) return null;
  const f = JSON.parse(canvas.dataset.frame) as Frame;
  const i = Math.floor(f.y + (y - f.top) / f.unit);
  const j = Math.floor(f.x + (x - f.left) / f.unit);
  const inside = x >= f.left && y >= f.top && x < f.left + f.side && y < f.top + f.side;
  return inside && i >= 0 && j >= 0 && i < f.n && j < f.n ? [i, j] : null;
}

/** The share of the square that a point is at, for zooming about it. */
export function shareAt(canvas: HTMLCanvasElement, x: number, y: number): [number, number] {
  const f = JSON.parse(canvas.dataset.frame ?? "{}") as Frame;
  return [Math.min(Math.max((x - f.left) / f.side, 0), 1), Math.min(Math.max((y - f.top) / f.side, 0), 1)];
}
