// Words: sizes, times, what a phase does, what was pointed at.
const PHASES = {
  'scatter-reduce': 'Contributions to each block are added up; each block becomes complete on another rank.',
  'all-gather': 'Complete blocks travel on, until every rank has all of them.',
  reduce: 'Contributions are added up on their way to one rank.',
  broadcast: 'What one rank has goes to all ranks.',
  exchange: 'Ranks give each other what they hold, and add it up.',
  reduce_scatter: 'Contributions to block r are added up for rank r.',
  all_gather: 'The block of every rank goes to all ranks.',
  gather: 'The block of every rank goes to the root.',
  scatter: 'The root gives block r to rank r.',
  all_to_all: 'Every rank has a block for every rank.',
  barrier: 'Signals only: a rank leaves when it has heard from all.',
};

function sizeText(bytes) {
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (bytes >= size) return `${+(bytes / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(bytes)} B`;
}

function timeText(us) {
  if (us >= 1e6) return `${(us / 1e6).toPrecision(3)} s`;
  return us >= 1e4 ? `${(us / 1e3).toPrecision(3)} ms` : `${us < 100 ? us.toFixed(1) : Math.round(us)} µs`;
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

// What is at a position: "step 2 of 6".
function positionText(run, position, clock) {
  if (clock === 'time') return `${timeText(position)} of ${timeText(run.cost.time_us)}`;
  const begun = Math.floor(position - run.first + 1e-6) + 1;
  return position >= run.depth ? `${plural(run.steps, 'step')}, done` : `step ${begun} of ${run.steps}`;
}

class Details {
  constructor(parent) {
    this.parent = parent;
    this.what = null;
  }

  // pinned: by a click; stays until another one.
  select(what, circle, pinned, shown) {
    if (this.pinned && !pinned) return;
    this.pinned = pinned;
    this.what = what;
    this.circle = circle;
    this.update(shown);
  }

  clear() {
    this.pinned = false;
    this.what = null;
    this.parent.replaceChildren();
    html('p', { class: 'quiet' }, this.parent, 'Point at, or tap, a rank, a block or a link. Keys: space plays, arrows step.');
  }

  update(shown) {
    if (!this.what) return;
    const list = this.parent.querySelector('.program'), scrolled = list ? list.scrollTop : 0;
    this.parent.replaceChildren();
    const { run } = this.circle;
    const lines = this.what.kind === 'link' ? this.link(run, shown) :
      this.what.kind === 'cell' ? this.cell(run, shown) : this.rank(run, shown);
    html('h3', {}, this.parent, lines[0]);
    for (const line of lines.slice(1)) html('p', {}, this.parent, line);
    if (this.what.kind === 'rank') this.program(run, shown).scrollTop = scrolled;
  }

  link(run, { links, flying }) {
    const link = run.links.get(this.what.key), carried = links.get(this.what.key) || 0;
    const how = link.window ? 'shared memory' : run.hosts[link.from] === run.hosts[link.to] ? 'inside a host' : 'between hosts';
    const now = flying.filter(({ move }) => move.key === this.what.key).map(({ move }) => this.moveText(run, move));
    return [`rank ${link.from} to rank ${link.to}`,
      `${how}; carried ${sizeText(carried)} of ${sizeText(link.bytes)}, ${plural(link.moves.length, 'message')} in all`,
      now.length ? 'Now: ' + now.join('; ') : 'Now: nothing'];
  }

  moveText(run, move) {
    if (move.value === undefined) return 'a signal';
    const what = run.blocks > 1 ? `block ${move.block}` : 'the data', numbers = run.numbers(move.value);
    return `${move.kind === 'message' ? '' : move.kind + ' of '}${what}, contributions of ` +
      `${run.text(move.value)}${numbers ? ` (${numbers})` : ''}, ${sizeText(move.bytes)}, ${move.phase}`;
  }

  cell(run, { cells, heard }) {
    const { rank, row, block } = this.what;
    if (run.rows[row] === 'heard') return [`rank ${rank}`, `has heard from ${heard[rank].join(', ')}`];
    const { value, passing } = cells[rank][row][block], numbers = run.numbers(value);
    const name = run.rows[row] === 'data' ? '' : run.rows[row] + ' ';
    const lines = [`rank ${rank}, ${name}block ${block}`];
    if (value < 0) return lines.concat('holds nothing yet');
    const ranks = run.values[value].ranks;
    lines.push(ranks.length === 1 ? `data of rank ${ranks[0]}` :
      `sum of the contributions of ranks ${run.text(value)}, in this order` + (run.complete(value) ? ': complete' : ''));
    if (numbers) lines.push(`numbers: ${numbers}`);
    if (passing) lines.push('on its way: sent on or kept in scratch memory, not in the rank\'s buffer');
    return lines;
  }

  rank(run, { ports }) {
    const { rank } = this.what, port = ports[rank], total = run.totals[rank];
    return [`rank ${rank}` + (run.hostCount > 1 ? `: local rank ${run.local[rank]} of host ${run.hosts[rank]}` : ''),
      `sent ${sizeText(port.out)} of ${sizeText(total.out)}, received ${sizeText(port.in)} of ${sizeText(total.in)}`,
      'Its program (plan_dump prints the same):'];
  }

  // The rank's steps; those that have run are marked.
  program(run, { position, clock }) {
    const list = html('ol', { start: 0, class: 'program' }, this.parent);
    const done = new Set(run.events.filter(e => e.rank === this.what.rank && CLOCKS[clock].event(e) <= position + 1e-9)
      .map(e => e.step));
    run.programs[this.what.rank].forEach((text, i) => html('li', { class: done.has(i) ? 'done' : '' }, list, text));
    return list;
  }
}
