/** Colours of both themes, from the sets of Okabe & Ito; scales grow in lightness alone. */

export interface Theme {
  ink: string;
  faint: string;
  line: string;
  ground: string;
  out: string; // what a token attends to
  into: string; // what attends to it
  scale: [number, number, number][];
  hops: string[];
}

const hex = (text: string): [number, number, number] => [1, 3, 5].map((k) => Number.parseInt(text.slice(k, k + 2), 16)) as [number, number, number];

export const LIGHT: Theme = {
  ink: "#1b2430",
  faint: "#5d6b7c",
  line: "#d5dce5",
  ground: "#ffffff",
  out: "#0072b2",
  into: "#d55e00",
  scale: ["#f4f7fb", "#bfd6ec", "#5f9bd1", "#1c5c9f", "#06274e"].map(hex),
  hops: ["#06274e", "#0072b2", "#009e73", "#c98a00", "#d55e00", "#9c4f7c"],
};
export const DARK: Theme = {
  ink: "#e8edf3",
  faint: "#9aa8b8",
  line: "#2c3743",
  ground: "#12171d",
  out: "#56b4e9",
  into: "#e69f00",
  scale: ["#1a212a", "#17466f", "#3584ad", "#9ccbd0", "#fff4c2"].map(hex),
  hops: ["#fff4c2", "#56b4e9", "#2fc39a", "#f0e442", "#e69f00", "#d98cb3"],
};

/** The colour of a weight from 0 to 1; small ones are told apart by a square root. */
export function shade(theme: Theme, weight: number): [number, number, number] {
  const t = Math.sqrt(Math.min(Math.max(weight, 0), 1)) * (theme.scale.length - 1);
  const k = Math.min(Math.floor(t), theme.scale.length - 2);
  const [a, b] = [theme.scale[k], theme.scale[k + 1]];
  return a.map((x, c) => Math.round(x + (b[c] - x) * (t - k))) as [number, number, number];
}

export function css([r, g, b]: [number, number, number]): string {
  return `rgb(${r},${g},${b})`;
}
