/** The gallery: a small map of every head, a row for each layer, with one number under each. */

import type { Attention } from "../attention";
import { shade, type Theme } from "../colours";
import { fit } from "../dom";
import type { State } from "../state";

interface Grid {
  left: number;
  top: number;
  cell: number; // with its border
  thumb: number;
  columns: number;
  rows: number;
}

function gridOf(width: number, attention: Attention): Grid {
  const columns = Math.max(...attention.heads);
  const rows = attention.heads.length;
  const cell = Math.min(Math.max(Math.floor((width - 64) / columns), 34), 132);
  return { left: 56, top: 26, cell, thumb: cell - 8, columns, rows };
}

export function galleryHeight(width: number, attention: Attention): number {
  const g = gridOf(width, attention);
  return g.top + g.rows * (g.cell + 14) + 10;
}

const pictures = new Map<string, ImageData>();

/** The map of one head in `side` pixels; the strongest edge of each pixel counts. */
function picture(attention: Attention, layer: number, head: number, side: number, theme: Theme): ImageData {
  const name = [attention.header.title, layer, head, side, theme.ground].join();
  const known = pictures.get(name);
  if (known) return known;
  const most = new Float32Array(side * side);
  const tiles = attention.header.tiles;
  if (tiles && attention.tiles) {
    const base = attention.numberOf(layer, head) * tiles.g * tiles.g;
    for (let y = 0; y < side; y++)
      for (let x = 0; x < side; x++)
        most[y * side + x] = (attention.tiles[base + Math.floor((y * tiles.g) / side) * tiles.g + Math.floor((x * tiles.g) / side)] / 255) ** 2;
  } else if (attention.rule && attention.n > side) {
    for (let y = 0; y < side; y++)
      for (const run of attention.rule.row(Math.floor(((y + 0.5) * attention.n) / side), attention.n, attention.n)) {
        const unit = side / attention.n;
        const step = Math.max(run.step, Math.floor(attention.n / side));
        for (let j = run.start; j < run.stop; j += step) most[y * side + Math.floor(j * unit)] = 0.4;
      }
  } else {
    const unit = side / attention.n;
    attention.forEach(layer, head, (i, j, weight) => {
      const [top, left] = [Math.floor(i * unit), Math.floor(j * unit)];
      const [bottom, right] = [Math.max(Math.floor((i + 1) * unit), top + 1), Math.max(Math.floor((j + 1) * unit), left + 1)];
      for (let y = top; y < bottom; y++) for (let x = left; x < right; x++) most[y * side + x] = Math.max(most[y * side + x], weight);
    });
  }
  const out = new ImageData(side, side);
  for (let k = 0; k < most.length; k++) out.data.set([...shade(theme, most[k]), 255], 4 * k);
  pictures.set(name, out);
  return out;
}

export function drawHeads(canvas: HTMLCanvasElement, theme: Theme, attention: Attention, state: State): void {
  const { pen, width, height } = fit(canvas);
  const g = gridOf(width, attention);
  canvas.dataset.grid = JSON.stringify(g);
  pen.fillStyle = theme.ground;
  pen.fillRect(0, 0, width, height);
  const ratio = globalThis.devicePixelRatio || 1;
  const side = Math.round(g.thumb * ratio);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.fillStyle = theme.faint;
  pen.textAlign = "center";
  for (let h = 0; h < g.columns; h++) pen.fillText(g.cell > 46 ? `head ${h}` : String(h), g.left + h * g.cell + g.thumb / 2, 12);
  attention.heads.forEach((heads, layer) => {
    const y = g.top + layer * (g.cell + 14);
    pen.textAlign = "right";
    pen.fillStyle = theme.faint;
    pen.fillText(`layer ${layer}`, g.left - 8, y + g.thumb / 2);
    for (let head = 0; head < heads; head++) {
      const x = g.left + head * g.cell;
      pen.putImageData(picture(attention, layer, head, side, theme), Math.round(x * ratio), Math.round(y * ratio));
      const chosen = layer === state.layer && head === state.head;
      pen.strokeStyle = chosen ? theme.into : theme.line;
      pen.lineWidth = chosen ? 3 : 1;
      pen.strokeRect(x - 1, y - 1, g.thumb + 2, g.thumb + 2);
      const value = attention.summary(layer, head)?.[state.metric];
      pen.textAlign = "center";
      pen.fillStyle = theme.faint;
      if (value !== undefined) pen.fillText(state.metric === "sink_share" ? `${Math.round(100 * value)}%` : value.toFixed(g.cell > 46 ? 2 : 1), x + g.thumb / 2, y + g.thumb + 10);
    }
  });
}

export function headAt(canvas: HTMLCanvasElement, attention: Attention, x: number, y: number): [number, number] | null {
  if (!canvas.dataset.grid) return null;
  const g = JSON.parse(canvas.dataset.grid) as Grid;
  const head = Math.floor((x - g.left) / g.cell);
  const layer = Math.floor((y - g.top) / (g.cell + 14));
  return layer >= 0 && layer < attention.heads.length && head >= 0 && head < attention.heads[layer] ? [layer, head] : null;
}
