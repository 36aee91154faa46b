// Where ranks, blocks and links lie in a picture of SIZE by SIZE.
const SIZE = 640;
const CENTER = SIZE / 2;
const SVG = 'http://www.w3.org/2000/svg';
// Past this many ranks a block shows how much of it is folded, not a slot for each rank.
const MOST_SLOTS = 16;

function svg(name, attributes = {}, parent = null, text = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

function html(name, attributes = {}, parent = null, text = null) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

class Layout {
  constructor(run) {
    const n = run.world;
    this.run = run;
    this.columns = run.blocks <= 4 ? run.blocks : Math.ceil(Math.sqrt(run.blocks));
    this.lines = Math.ceil(run.blocks / this.columns);
    this.header = n <= 4 ? 26 : n <= 8 ? 22 : n <= 16 ? 18 : n <= 32 ? 13 : 10;
    this.footer = n <= 4 ? 31 : n <= 8 ? 29 : n <= 32 ? 8 : 4;
    this.width = this.nodeWidth(n);
    this.cellWidth = (this.width - 8) / this.columns;
    const rows = run.rows.length, room = n <= 4 ? 132 : n <= 8 ? 84 : this.width - this.header - this.footer;
    this.cellHeight = Math.min(n <= 4 ? 50 : 32, n <= 4 ? 50 : this.cellWidth, room / (this.lines * rows));
    this.rowHeight = this.lines * this.cellHeight + (rows > 1 ? 5 : 0);
    this.height = this.header + rows * this.rowHeight + this.footer;
    const margin = run.hostCount > 1 ? 14 : 4;
    this.radius = n === 1 ? 0 : CENTER - margin - (n <= 4 ? Math.max(this.width, this.height) : this.width) / 2;
    if (n === 2) this.radius = CENTER - margin - this.width / 2;
    this.nodes = Array.from({ length: n }, (_, rank) => {
      const angle = this.angle(rank);
      return { x: CENTER + this.radius * Math.cos(angle), y: CENTER + this.radius * Math.sin(angle), angle };
    });
  }

  // The part of the square that is used: [y, height].
  extent() {
    if (this.run.hostCount > 1) return [0, SIZE];
    const ys = this.nodes.map(node => node.y), margin = this.height / 2 + 6;
    const top = Math.min(...ys) - margin, bottom = Math.max(...ys) + margin;
    const spare = this.run.world === 2 ? 40 : 0;  // the links between two bend outward
    return [top - spare, bottom - top + 2 * spare];
  }

  nodeWidth(n) {
    if (n <= 2) return 220;
    if (n <= 4) return 204;
    const margin = this.run.hostCount > 1 ? 14 : 4, sine = Math.sin(Math.PI / n);
    // The part of the chord between neighbors that a node takes, on the circle that the nodes leave room for: where they
    // lie diagonally, squares have 1/sqrt(2) of the chord.
    const part = n <= 8 ? 0.84 : 0.69;
    return Math.min(132, part * 2 * sine * (CENTER - margin) / (1 + sine * part));
  }

  angle(rank) {
    const n = this.run.world;
    return n === 2 ? Math.PI * (1 - rank) : -Math.PI / 2 + 2 * Math.PI * rank / n;
  }

  // Relative to the upper left corner of the node.
  cell(row, block) {
    return {
      x: 4 + (block % this.columns) * this.cellWidth,
      y: this.header + row * this.rowHeight + Math.floor(block / this.columns) * this.cellHeight,
    };
  }

  // Where the ray from a node's center toward a point leaves its box.
  border(node, x, y) {
    const dx = x - node.x, dy = y - node.y;
    const scale = Math.min((this.width / 2 + 3) / Math.max(1e-6, Math.abs(dx)),
                           (this.height / 2 + 3) / Math.max(1e-6, Math.abs(dy)));
    return { x: node.x + dx * scale, y: node.y + dy * scale };
  }

  // A curve that is bent to its right, so that both directions can be seen.
  link(from, to) {
    const a = this.nodes[from], b = this.nodes[to];
    const dx = b.x - a.x, dy = b.y - a.y, length = Math.hypot(dx, dy) || 1;
    const bend = Math.min(34, length * 0.12);
    const x = (a.x + b.x) / 2 - dy / length * bend, y = (a.y + b.y) / 2 + dx / length * bend;
    const start = this.border(a, x, y), end = this.border(b, x, y);
    return `M${start.x.toFixed(1)} ${start.y.toFixed(1)}Q${x.toFixed(1)} ${y.toFixed(1)} ${end.x.toFixed(1)} ${end.y.toFixed(1)}`;
  }

  // The band of the circle that the ranks of a host take.
  frame(host) {
    const ranks = this.run.hosts.flatMap((h, rank) => h === host ? [rank] : []);
    const step = 2 * Math.PI / this.run.world;
    const a = this.angle(ranks[0]) - step * 0.47, b = this.angle(ranks[ranks.length - 1]) + step * 0.47;
    return { ranks, a, b };
  }
}
