// Colors of ranks: eight that color-blind people can tell apart (Okabe and Ito), then the same with a pattern.
const HUES = ['#E69F00', '#56B4E9', '#009E73', '#F0E442', '#0072B2', '#D55E00', '#CC79A7', '#9A9A9A'];
const INKS = ['#000', '#000', '#fff', '#000', '#fff', '#fff', '#000', '#000'];
const PATTERNS = [null, 'M0 8L8 0', 'M0 4H8', 'M4 0V8', 'M0 0L8 8', 'M4 0V8M0 4H8', 'M0 8L8 0M0 0L8 8', 'M2 2H4V4H2z'];

const rankColor = rank => HUES[rank % HUES.length];
const rankInk = rank => INKS[rank % INKS.length];
const rankFill = rank => rank < HUES.length ? HUES[rank] : `url(#rank${rank})`;

// SVG patterns of ranks 8 and up, once a page.
function addPatterns(parent, world) {
  const defs = svg('defs', {}, svg('svg', { width: 0, height: 0, class: 'patterns', 'aria-hidden': 'true' }, parent));
  for (let rank = HUES.length; rank < world; ++rank) {
    const pattern = svg('pattern', { id: `rank${rank}`, width: 8, height: 8, patternUnits: 'userSpaceOnUse' }, defs);
    svg('rect', { width: 8, height: 8, fill: rankColor(rank) }, pattern);
    svg('path', { d: PATTERNS[Math.floor(rank / HUES.length) % PATTERNS.length], stroke: rankInk(rank), 'stroke-width': 1.6,
      fill: 'none' }, pattern);
  }
}
