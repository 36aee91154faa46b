// What every rank holds, as a table: by rank and block, in numbers or whose contributions.
class Table {
  constructor(run, parent) {
    this.run = run;
    this.vectors = run.elements > 0 && run.rows[0] === 'data' && run.collective !== 'reduce_scatter';
    const table = html('table', { class: 'holds' }, html('div', { class: 'scroll' }, parent));
    const head = html('tr', {}, html('thead', {}, table));
    html('th', { scope: 'col' }, head, 'rank');
    if (this.vectors) html('th', { scope: 'col' }, head, 'before');
    run.rows.forEach(row => {
      for (let block = 0; block < run.blocks; ++block) {
        const name = row === 'heard' ? 'heard from' : row === 'data' ? '' : row + ' ';
        html('th', { scope: 'col' }, head, row === 'heard' ? name : name + block);
      }
    });
    if (this.vectors) html('th', { scope: 'col' }, head, 'after');
    this.body = html('tbody', {}, table);
    this.rows = Array.from({ length: run.world }, (_, rank) => this.addRow(rank));
  }

  addRow(rank) {
    const { run } = this, line = html('tr', { 'data-rank': rank }, this.body);
    const first = html('th', { scope: 'row' }, line);
    svg('rect', { width: 16, height: 16, rx: 3, fill: rankFill(rank) }, svg('svg', { viewBox: '0 0 16 16', class: 'swatch' }, first));
    const where = run.hostCount > 1 ? ` · host ${run.hosts[rank]}, local ${run.local[rank]}` : '';
    html('span', { class: 'who' }, first, `${rank}`);
    if (where) html('span', { class: 'where' }, first, where);
    const row = { line, cells: [], before: null, after: null };
    if (this.vectors) row.before = html('td', { class: 'vector' }, line, this.vector(run.cells(run.first - 1, 'step')[rank], 0));
    run.rows.forEach((name, r) => {
      for (let block = 0; block < run.blocks; ++block) {
        const cell = html('td', { 'data-cell': `${rank}.${r}.${block}` }, line);
        const strip = html('span', { class: 'strip', 'aria-hidden': 'true' }, cell);
        row.cells.push({ cell, strip, text: html('span', { class: 'text' }, cell), mark: null });
      }
    });
    const last = run.rows.indexOf('output') < 0 ? 0 : 1;
    if (this.vectors) row.after = html('td', { class: 'vector' }, line, this.vector(run.cells(run.depth, 'step')[rank], last));
    return row;
  }

  // "[1, 2]"; of several vectors "[1, 2] [3, 4]".
  vector(rows, row) {
    const { run } = this, held = rows[row].filter(({ value }) => run.numbers(value)).map(({ value }) => run.values[value].numbers);
    const vectors = ['all_reduce', 'reduce', 'broadcast'].includes(run.collective) ? [held.flat()] : held;
    return vectors.flat().length ? vectors.map(numbers => `[${numbers.join(', ')}]`).join(' ') : '–';
  }

  update({ cells, heard }) {
    const { run } = this;
    this.rows.forEach((row, rank) => row.cells.forEach((entry, i) => {
      const { value, passing } = cells[rank][Math.floor(i / run.blocks)][i % run.blocks];
      this.updateCell(entry, value, passing, heard && i < run.blocks ? heard[rank] : null);
    }));
  }

  updateCell(entry, value, passing, heard) {
    const { run } = this, mark = `${heard || value} ${passing}`;
    if (entry.mark === mark) return;
    entry.mark = mark;
    const ranks = heard || (value < 0 ? [] : run.values[value].ranks);
    entry.strip.style.background = strip(ranks, run);
    const complete = heard ? heard.length === run.world : run.complete(value);
    entry.cell.className = (run.numbers(value) === '' ? 'empty ' : '') + (passing ? 'passing ' : '') + (complete ? 'complete ' : '') + (ranks.length ? '' : 'nothing');
    entry.text.textContent = this.textOf(value, ranks, complete);
    entry.cell.title = ranks.length === 0 ? 'nothing yet' : (heard ? 'heard from ' : 'of rank ') + ranks.join(heard ? ', ' : ' + ');
  }

  textOf(value, ranks, complete) {
    const { run } = this, numbers = run.numbers(value);
    if (numbers !== null) return numbers || 'empty';
    if (ranks.length === 0) return '–';
    if (run.world > 4 && complete) return 'all';
    return run.world <= 4 || ranks.length <= 3 ? ranks.join('+') : `${ranks.length}/${run.world}`;
  }
}

// Stripes of the ranks' colors, at fixed places where contributions are folded.
function strip(ranks, run) {
  if (ranks.length === 0) return 'none';
  if (!run.reduces && run.rows[0] !== 'heard') return rankColor(ranks[0]);
  const n = run.world, has = new Set(ranks), stops = [];
  for (let r = 0; r < n; ++r) {
    stops.push(`${has.has(r) ? rankColor(r) : 'transparent'} ${(100 * r / n).toFixed(2)}% ${(100 * (r + 1) / n).toFixed(2)}%`);
  }
  return `linear-gradient(90deg, ${stops.join(', ')})`;
}
