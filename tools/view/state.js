// What a run (plan_run.h) shows at a position. A position is a step (depth) or a microsecond, by the clock.
const CLOCKS = {
  step: { event: e => e.depth, until: e => e.until, begin: m => m.begin, end: m => m.end },
  time: { event: e => e.end_us, until: e => e.until_us, begin: m => m.begin_us, end: m => m.end_us },
};

class Run {
  constructor(data) {
    Object.assign(this, data);
    this.links = new Map();
    this.totals = Array.from({ length: this.world }, () => ({ out: 0, in: 0 }));
    this.moves.forEach((move, i) => {
      move.index = i;
      move.key = move.from + '>' + move.to;
      const link = this.links.get(move.key) || { from: move.from, to: move.to, bytes: 0, moves: [], window: false };
      link.moves.push(move);
      link.bytes += move.bytes;
      link.window = link.window || move.kind === 'load' || move.kind === 'store';
      this.links.set(move.key, link);
      this.totals[move.from].out += move.bytes;
      this.totals[move.to].in += move.bytes;
    });
    this.first = this.moves.some(m => m.kind !== 'signal' && m.begin < 0) ? -1 : 0;
    this.steps = this.depth - this.first;
    this.local = this.hosts.map((host, rank) => this.hosts.slice(0, rank).filter(h => h === host).length);
    this.hostCount = new Set(this.hosts).size;
  }

  range(clock) {
    return clock === 'step' ? [this.first, this.depth] : [0, this.cost.time_us];
  }

  // [rank][row][block]: {value, passing}; value -1: nothing.
  cells(position, clock) {
    const at = CLOCKS[clock];
    const cells = this.totals.map(() => this.rows.map(() =>
      Array.from({ length: this.blocks }, () => ({ value: -1, passing: false }))));
    for (const [rank, row, block, value] of this.initial) cells[rank][row][block].value = value;
    const passing = [];
    for (const event of this.events) {
      if (event.value < 0 || at.event(event) > position + 1e-9) continue;
      for (const [rank, row, block] of event.writes) cells[rank][row][block].value = event.value;
      if (event.passes && at.until(event) > position + 1e-9) passing.push(event);
    }
    for (const event of passing) {
      const row = this.rows.indexOf('output') < 0 ? 0 : 1;
      cells[event.rank][row][event.block] = { value: event.value, passing: true };
    }
    return cells;
  }

  // The ranks that each rank has heard from, in a barrier.
  heard(position, clock) {
    const heard = this.totals.map((_, rank) => [rank]);
    for (const event of this.events) {
      if (event.heard && CLOCKS[clock].event(event) <= position + 1e-9) heard[event.rank] = event.heard;
    }
    return heard;
  }

  // Moves under way, with the part of the way that they have behind them.
  flying(position, clock) {
    const at = CLOCKS[clock], list = [];
    for (const move of this.moves) {
      const begin = at.begin(move), end = at.end(move);
      if (begin <= position + 1e-9 && position < end - 1e-9) {
        list.push({ move, part: Math.max(0, (position - begin) / (end - begin)) });
      }
    }
    return list;
  }

  // Bytes that a link, or the ports of a rank, have carried.
  carried(position, clock) {
    const at = CLOCKS[clock], links = new Map();
    const ports = this.totals.map(() => ({ out: 0, in: 0 }));
    for (const move of this.moves) {
      const begin = at.begin(move), end = at.end(move);
      const part = position >= end - 1e-9 ? 1 : position <= begin ? 0 : (position - begin) / (end - begin);
      const bytes = move.bytes * part;
      links.set(move.key, (links.get(move.key) || 0) + bytes);
      ports[move.from].out += bytes;
      ports[move.to].in += bytes;
    }
    return { links, ports };
  }

  // Names of what is moved from this position on.
  phases(position, clock) {
    const names = [], under = this.flying(position, clock);
    const data = under.filter(({ move }) => move.kind !== 'signal');
    for (const { move } of data.length ? data : under) {
      if (!names.includes(move.phase)) names.push(move.phase);
    }
    return names;
  }

  // [{name, begin, end}]: a phase lasts until the next one begins.
  phaseSpans(clock) {
    const at = CLOCKS[clock], [first, last] = this.range(clock), begins = new Map();
    const data = this.moves.filter(m => m.kind !== 'signal');
    for (const move of data.length ? data : this.moves) {
      const begin = at.begin(move);
      if (!begins.has(move.phase) || begin < begins.get(move.phase)) begins.set(move.phase, begin);
    }
    const spans = [...begins].sort((a, b) => a[1] - b[1]).map(([name, begin]) => ({ name, begin }));
    spans.forEach((span, i) => { span.end = i + 1 < spans.length ? spans[i + 1].begin : last; });
    if (spans.length) spans[0].begin = Math.min(spans[0].begin, first);
    return spans;
  }

  // Positions at which something ends, for stepping.
  stops(clock) {
    const [first, last] = this.range(clock);
    if (clock === 'step') return Array.from({ length: last - first + 1 }, (_, i) => first + i);
    const ends = new Set([first, last]);
    for (const move of this.moves) ends.add(CLOCKS.time.end(move));
    return [...ends].sort((a, b) => a - b);
  }

  busiest() {
    let rank = 0;
    const load = r => Math.max(this.totals[r].in, this.totals[r].out);
    for (let r = 1; r < this.world; ++r) if (load(r) > load(rank)) rank = r;
    return { rank, bytes: load(rank) };
  }

  // "0+1+2", in the order of the fold.
  text(value) {
    return value < 0 ? 'nothing' : this.values[value].ranks.join('+');
  }

  numbers(value) {
    return value === undefined || value < 0 || !this.values[value].numbers ? null : this.values[value].numbers.join(' ');
  }

  complete(value) {
    return value >= 0 && this.reduces && this.values[value].finished;
  }
}
