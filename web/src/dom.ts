/** Elements without innerHTML: texts of users are text nodes and nothing else. */

type Child = Node | string | null;
type Options = Record<string, string | number | boolean | ((event: Event) => void)>;

export function el<K extends keyof HTMLElementTagNameMap>(tag: K, options: Options = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false) made.setAttribute(name, String(value));
  }
  made.append(...children.filter((c): c is Node | string => c !== null));
  return made;
}

/** A token as it is shown: control characters, also those of direction, become visible signs. */
export function shown(token: string, most = 24): string {
  let out = "";
  for (const c of token.slice(0, most * 2)) {
    const code = c.codePointAt(0) as number;
    if (code < 0x20) out += String.fromCodePoint(0x2400 + code);
    else if (code === 0x7f) out += "␡";
    else if ((code > 0x7f && code < 0xa0) || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code === 0xfeff || (code >= 0xd800 && code <= 0xdfff))
      out += `⟨${code.toString(16).toUpperCase()}⟩`;
    else if (code === 0x120 || code === 0x2581) out += "·"; // a blank in byte-pair and sentence-piece vocabularies
    else out += c;
  }
  const letters = [...out];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : out || "∅";
}

export function percent(weight: number): string {
  return weight >= 0.0995 ? `${(100 * weight).toFixed(1)}%` : `${(100 * weight).toFixed(2)}%`;
}

/** A canvas at the resolution of the screen, drawn in units of CSS. */
export function fit(canvas: HTMLCanvasElement): { pen: CanvasRenderingContext2D; width: number; height: number } {
  const box = canvas.getBoundingClientRect();
  const ratio = globalThis.devicePixelRatio || 1;
  const [width, height] = [Math.max(Math.floor(box.width), 1), Math.max(Math.floor(box.height), 1)];
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const pen = canvas.getContext("2d", { alpha: false, willReadFrequently: true }) as CanvasRenderingContext2D;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { pen, width, height };
}
