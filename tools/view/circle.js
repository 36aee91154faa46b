// The picture of one run: ranks round a circle, hosts as frames, links, and what travels on them.
class Circle {
  constructor(run, id, scale, select) {
    this.run = run;
    this.id = id;
    this.scale = scale;  // of all runs on the page: {link, port} bytes at most
    this.layout = new Layout(run);
    const [top, height] = this.layout.extent();
    this.root = svg('svg', { viewBox: `0 ${top} ${SIZE} ${height}`, class: 'circle', role: 'group',
      'aria-label': `${run.world} ranks round a circle` });
    this.addArrows();
    this.frames = svg('g', { class: 'frames' }, this.root);
    this.linkGroup = svg('g', { class: 'links' }, this.root);
    this.nodeGroup = svg('g', { class: 'nodes' }, this.root);
    this.parcelGroup = svg('g', { class: 'parcels' }, this.root);
    this.select = select;
    if (run.hostCount > 1) this.addFrames();
    this.addLinks();
    this.nodes = this.layout.nodes.map((node, rank) => this.addNode(node, rank));
    this.parcels = new Map();
  }

  addArrows() {
    const defs = svg('defs', {}, this.root);
    for (const kind of ['idle', 'busy']) {
      const marker = svg('marker', { id: `arrow-${kind}-${this.id}`, viewBox: '0 0 8 8', refX: 7, refY: 4,
        markerWidth: 9, markerHeight: 9, markerUnits: 'userSpaceOnUse', orient: 'auto' }, defs);
      svg('path', { d: 'M0 0L8 4L0 8z', class: `arrow ${kind}` }, marker);
    }
  }

  addFrames() {
    const outer = CENTER - 2, inner = Math.max(40, this.layout.radius - this.layout.height / 2 - 12);
    const point = (radius, angle) =>
      `${(CENTER + radius * Math.cos(angle)).toFixed(1)} ${(CENTER + radius * Math.sin(angle)).toFixed(1)}`;
    for (let host = 0; host < this.run.hostCount; ++host) {
      const { a, b, ranks } = this.layout.frame(host);
      const large = b - a > Math.PI ? 1 : 0, middle = (a + b) / 2;
      svg('path', { class: 'frame', 'data-host': host, d:
        `M${point(outer, a)}A${outer} ${outer} 0 ${large} 1 ${point(outer, b)}L${point(inner, b)}` +
        `A${inner} ${inner} 0 ${large} 0 ${point(inner, a)}z` }, this.frames);
      const away = Math.max(30, this.run.world <= 8 ? inner - 18 : inner * 0.72);
      svg('text', { class: 'host', x: CENTER + away * Math.cos(middle), y: CENTER + away * Math.sin(middle) + 6 },
          this.frames, ranks.length > 0 ? `host ${host}` : '');
    }
  }

  addLinks() {
    this.links = new Map();
    for (const [key, link] of this.run.links) {
      const path = svg('path', { d: this.layout.link(link.from, link.to), class: 'link' + (link.window ? ' window' : ''),
        'data-link': key }, this.linkGroup);
      const touch = svg('path', { d: path.getAttribute('d'), class: 'touch', 'data-link': key }, this.linkGroup);
      this.watch(touch, { kind: 'link', key });
      this.links.set(key, { path, width: '', state: '' });
    }
  }

  addNode(place, rank) {
    const { layout, run } = this;
    const group = svg('g', { class: 'node', tabindex: 0, 'data-rank': rank, role: 'button', 'aria-label': `rank ${rank}`,
      transform: `translate(${place.x - layout.width / 2} ${place.y - layout.height / 2})` }, this.nodeGroup);
    svg('rect', { class: 'box', width: layout.width, height: layout.height, rx: Math.min(10, layout.width / 6) }, group);
    const size = run.world <= 4 ? 19 : run.world <= 16 ? 16 : run.world <= 32 ? 12 : 7.5, left = run.world <= 32 ? 7 : 1;
    svg('circle', { cx: left + size * 0.4, cy: layout.header / 2 + 1, r: size * 0.36, fill: rankFill(rank), class: 'dot' }, group);
    const name = run.world <= 8 ? `rank ${rank}` : String(rank);
    const title = svg('text', { x: run.world <= 32 ? left + 4 + size * 0.8 : left + size, y: layout.header / 2 + size * 0.36 + 1,
      class: 'name' + (rank === run.root ? ' root' : ''), 'font-size': size }, group, name);
    // Underlined, too: past 16 ranks there is no room for a word.
    if (rank === run.root && run.world <= 16) svg('tspan', { class: 'quiet' }, title, run.world <= 8 ? ' root' : ' r');
    if (run.hostCount > 1 && run.world <= 16) {
      svg('text', { x: layout.width - 6, y: layout.header / 2 + size * 0.36, class: 'local', 'font-size': size * 0.8 },
          group, run.world <= 8 ? `local ${run.local[rank]}` : `l${run.local[rank]}`);
    }
    const cells = run.rows.map((name, row) => Array.from({ length: run.blocks }, (_, block) =>
      this.addCell(group, rank, row, block)));
    const node = { group, cells, ...this.addPort(group) };
    this.watch(group, { kind: 'rank', rank });
    return node;
  }

  addPort(group) {
    const { layout } = this, y = layout.height - layout.footer;
    const thick = layout.footer >= 20 ? 7 : Math.max(2, layout.footer - 3);
    svg('rect', { class: 'track', x: 5, y: y + 4, width: layout.width - 10, height: thick, rx: thick / 2 }, group);
    const bar = svg('rect', { class: 'port', x: 5, y: y + 4, width: 0, height: thick, rx: thick / 2 }, group);
    const label = layout.footer >= 20 ?
      svg('text', { class: 'bytes', x: layout.width - 6, y: y + 24, 'font-size': this.run.world <= 4 ? 13 : 11 }, group, '') : null;
    return { bar, label };
  }

  addCell(parent, rank, row, block) {
    const { layout, run } = this, { x, y } = layout.cell(row, block);
    const gap = layout.cellWidth > 14 ? 2 : layout.cellWidth > 5 ? 0.6 : 0;
    const group = svg('g', { class: 'cell', transform: `translate(${x + gap / 2} ${y + gap / 2})`,
      'data-cell': `${rank}.${row}.${block}` }, parent);
    const width = layout.cellWidth - gap, height = layout.cellHeight - gap;
    svg('rect', { class: 'ground', width, height, rx: Math.min(4, width / 5) }, group);
    const slots = svg('g', { class: 'slots' }, group);
    const label = width > 30 && height > 18 ? svg('text', { class: 'label', x: width / 2, y: this.top(width) - 2, 'font-size': this.top(width) - 2 }, group, '') : null;
    const edge = svg('rect', { class: 'edge', width, height, rx: Math.min(4, width / 5) }, group);
    const cell = { row: run.rows[row], group, slots, label, edge, width, height, value: null, passing: null };
    this.watch(group, { kind: 'cell', rank, row, block });
    return cell;
  }

  // The height of the text over the slots.
  top(width) {
    return width >= 42 ? 15 : 12;
  }

  // Whose contributions: a slot for each rank, or what part of all.
  drawSlots(parent, ranks, width, height, top) {
    const { run } = this, n = run.world;
    parent.replaceChildren();
    const fixed = run.reduces || run.rows[0] === 'heard';
    const edge = width > 6 ? 1.5 : 0, inner = Math.max(0.5, height - top - edge - 0.5);
    if (ranks.length === 0) return;
    if (!fixed) {
      svg('rect', { x: edge, y: top, width: width - 2 * edge, height: inner, rx: edge, fill: rankFill(ranks[0]), 'data-of': ranks[0] }, parent);
      if (width > 15) this.digit(parent, width / 2, top + inner / 2, ranks[0], Math.min(inner, width * 0.6));
      return;
    }
    if (n > MOST_SLOTS) {
      svg('rect', { x: edge, y: top, width: (width - 2 * edge) * ranks.length / n, height: inner,
        fill: ranks.length === 1 ? rankFill(ranks[0]) : 'var(--many)', 'data-of': ranks.join('+') }, parent);
      return;
    }
    const slot = (width - 3) / n;
    for (const rank of ranks) {
      svg('rect', { x: 1.5 + rank * slot, y: top, width: slot + 0.2, height: inner, fill: rankFill(rank), 'data-of': rank }, parent);
      if (slot >= 7.5) this.digit(parent, 1.5 + (rank + 0.5) * slot, top + inner / 2, rank, Math.min(inner, slot * 1.25));
    }
  }

  digit(parent, x, y, rank, room) {
    const size = Math.min(14, room);
    svg('text', { x, y: y + size * 0.36, class: 'digit', 'font-size': size, fill: rankInk(rank) }, parent, String(rank));
  }

  updateCell(cell, block, value, passing, heard) {
    const mark = heard ? heard.join() : value;
    if (cell.value === mark && cell.passing === passing) return;
    const { run } = this;
    cell.value = mark;
    cell.passing = passing;
    const ranks = heard || (value < 0 ? [] : run.values[value].ranks);
    this.drawSlots(cell.slots, ranks, cell.width, cell.height, cell.label ? this.top(cell.width) + 1 : cell.width > 6 ? 1 : 0);
    const numbers = run.numbers(value);
    if (cell.label) {
      cell.label.textContent = heard ? 'heard' : numbers !== null ? numbers || 'empty' : this.cellName(cell, block);
    }
    cell.group.classList.toggle('empty', numbers === '');
    const complete = heard ? heard.length === run.world : run.complete(value);
    cell.edge.setAttribute('class', 'edge' + (passing ? ' passing' : '') + (complete ? ' complete' : ''));
  }

  // The name of a cell without numbers; short where it is narrow.
  cellName(cell, block) {
    const short = { data: '', input: 'in ', output: 'out ', staging: 'stg ' }[cell.row];
    if (cell.row !== 'data') return short + block;
    return this.run.blocks === 1 ? 'data' : cell.width < 58 ? String(block) : `block ${block}`;
  }

  update(position, clock) {
    const { run } = this, cells = run.cells(position, clock);
    const heard = run.rows[0] === 'heard' ? run.heard(position, clock) : null;
    const flying = run.flying(position, clock), { links, ports } = run.carried(position, clock);
    this.nodes.forEach((node, rank) => {
      node.cells.forEach((row, r) => row.forEach((cell, block) => {
        const { value, passing } = cells[rank][r][block];
        this.updateCell(cell, block, value, passing, heard && r === 0 ? heard[rank] : null);
      }));
      this.updatePort(node, ports[rank]);
    });
    const busy = new Set(flying.map(({ move }) => move.key));
    for (const [key, link] of this.links) {
      const width = (1.2 + 5 * (links.get(key) || 0) / this.scale.link).toFixed(2);
      const state = busy.has(key) ? 'busy' : 'idle';
      if (link.width !== width) link.path.setAttribute('stroke-width', link.width = width);
      if (link.state !== state) {
        link.state = state;
        link.path.classList.toggle('busy', state === 'busy');
        link.path.setAttribute('marker-end', `url(#arrow-${state}-${this.id})`);
      }
    }
    this.updateParcels(flying);
    return { cells, heard, flying, links, ports };
  }

  updatePort(node, port) {
    const bytes = Math.max(port.in, port.out), share = bytes / this.scale.port;
    node.bar.setAttribute('width', Math.max(0, (this.layout.width - 10) * Math.min(1, share)).toFixed(1));
    node.bar.classList.toggle('hot', share > 0.66 && this.scale.uneven);
    if (node.label) node.label.textContent = bytes > 0 ? this.portText(port) : '';
  }

  portText(port) {
    const [out, into] = [sizeText(port.out), sizeText(port.in)];
    return this.run.world <= 4 ? `${out} out · ${into} in` : `↑${out} ↓${into}`;
  }

  updateParcels(flying) {
    const now = new Map(flying.filter(({ part }) => part > 0.001).map(entry => [entry.move.index, entry]));
    for (const [index, parcel] of this.parcels) {
      if (now.has(index)) continue;
      parcel.remove();
      this.parcels.delete(index);
    }
    for (const [index, { move, part }] of now) {
      if (!this.parcels.has(index)) this.parcels.set(index, this.addParcel(move));
      const path = this.links.get(move.key).path;
      const { x, y } = path.getPointAtLength(path.getTotalLength() * part);
      this.parcels.get(index).setAttribute('transform', `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    }
  }

  addParcel(move) {
    const group = svg('g', { class: 'parcel' + (this.run.numbers(move.value) === '' ? ' empty' : ''), 'data-move': move.index }, this.parcelGroup);
    if (move.value === undefined) {
      svg('circle', { r: this.run.world <= 16 ? 6 : 4, class: 'signal' }, group);
      return group;
    }
    const width = this.run.world <= 4 ? 56 : this.run.world <= 8 ? 38 : this.run.world <= 16 ? 19 : this.run.world <= 32 ? 12 : 7;
    const numbers = this.run.numbers(move.value), height = width * 0.62;
    const inner = svg('g', { transform: `translate(${-width / 2} ${-height / 2})` }, group);
    svg('rect', { class: 'ground', width, height, rx: 4 }, inner);
    const top = width >= 38 ? this.top(width) + 1 : 2;
    this.drawSlots(svg('g', {}, inner), this.run.values[move.value].ranks, width, height, top);
    if (width >= 38) {
      svg('text', { class: 'label', x: width / 2, y: this.top(width) - 2, 'font-size': this.top(width) - 2 }, inner,
          numbers === null ? (this.run.blocks > 1 ? `block ${move.block}` : 'data') : numbers || 'empty');
    }
    svg('rect', { class: 'edge passing' + (this.run.complete(move.value) ? ' complete' : ''), width, height, rx: 4 }, inner);
    return group;
  }

  watch(element, what) {
    element.addEventListener('pointerenter', () => this.select(what, this, false));
    element.addEventListener('click', event => { event.stopPropagation(); this.select(what, this, true); });
    element.addEventListener('focus', () => this.select(what, this, false));
    element.addEventListener('keydown', event => {
      if (event.key === 'Enter') this.select(what, this, true);
    });
  }
}
