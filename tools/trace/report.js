// The timeline of a report: a band for each rank, a row for its operations, each lane and its messages.
const data = JSON.parse(document.getElementById('spans').textContent);
const canvas = document.getElementById('lanes');
const [OPERATION, STEP, WAIT, STOPPED] = [0, 1, 2, 3];
const ROW = 16, GAP = 10, LEFT = 62;
const style = name => getComputedStyle(document.body).getPropertyValue(name).trim();
const microseconds = us => us >= 1e6 ? `${(us / 1e6).toPrecision(4)} s` : us >= 1e3 ? `${(us / 1e3).toPrecision(4)} ms` : `${us.toPrecision(4)} µs`;

// Rows: by rank, its threads in order. Of many ranks the first, which are late, until the button asks for all.
const threads = new Map(data.ranks.map(({ rank }) => [rank, new Set()]));
for (const span of data.spans) threads.get(span[0]).add(span[1]);
const rows = new Map(), tops = new Map();
let height;
function showRanks(count) {
  rows.clear();
  tops.clear();
  height = 24;
  for (const { rank } of data.ranks.slice(0, count)) {
    tops.set(rank, height);
    for (const thread of threads.get(rank).size ? [...threads.get(rank)].sort((a, b) => a - b) : [0]) {
      rows.set(`${rank}/${thread}`, height);
      height += ROW;
    }
    height += GAP;
  }
}
showRanks(data.most);
const last = Math.max(1, ...data.spans.map(s => s[3] + s[4]));
const view = { from: 0, to: last };
let picked = null;

function colorOf(span) {
  if (span[2] === STOPPED) return style('--hot');
  if (span[2] === WAIT) return style('--wait');
  if (span[2] === STEP) return style('--link');
  return rankColor(span[0]);
}

function draw() {
  const width = canvas.clientWidth, scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext('2d');
  pen.scale(scale, scale);
  pen.font = '12px system-ui, sans-serif';
  const place = us => LEFT + (us - view.from) / (view.to - view.from) * (width - LEFT);
  pen.fillStyle = style('--quiet');
  const ticks = width < 560 ? 2 : 4;
  for (let i = 0; i <= ticks; ++i) {
    pen.textAlign = i === ticks ? 'right' : i ? 'center' : 'left';
    const us = view.from + (view.to - view.from) * i / ticks;
    pen.fillText(microseconds(us), place(us), 13);
  }
  pen.textAlign = 'left';
  for (const [rank, top] of tops) {
    pen.fillStyle = style('--ink');
    pen.fillText(`rank ${rank}`, 4, top + 12);
  }
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, width - LEFT, height);
  pen.clip();
  for (const kinds of [[STEP, 4], [WAIT], [OPERATION], [STOPPED]]) {
    for (const span of data.spans) {
      if (!kinds.includes(span[2]) || !tops.has(span[0]) || span[3] > view.to || span[3] + span[4] < view.from) continue;
      const x = place(span[3]), size = Math.max(1, place(span[3] + span[4]) - x), y = rows.get(`${span[0]}/${span[1]}`);
      pen.fillStyle = colorOf(span);
      pen.fillRect(x, y + 1, size, ROW - 2);
      if (span === picked) {
        pen.strokeStyle = style('--accent');
        pen.lineWidth = 2;
        pen.strokeRect(x, y + 1, size, ROW - 2);
      }
      if (size > 60 && span[2] !== WAIT) {
        pen.fillStyle = span[2] === OPERATION ? rankInk(span[0]) : span[2] === STOPPED ? style('--card') : style('--ink');
        pen.fillText(span[5], Math.max(x, LEFT) + 4, y + 12, size - 8);
      }
    }
  }
  pen.restore();
}

function move(from, to) {
  const length = Math.min(Math.max(to - from, 0.05), last);
  view.from = Math.min(Math.max(from, 0), last - length);
  view.to = view.from + length;
  draw();
}
const zoom = (factor, at = (view.from + view.to) / 2) => move(at - (at - view.from) * factor, at + (view.to - at) * factor);
const timeAt = x => view.from + (x - LEFT) / (canvas.clientWidth - LEFT) * (view.to - view.from);
const actions = {
  in: () => zoom(0.5), out: () => zoom(2), all: () => move(0, last),
  left: () => move(view.from - (view.to - view.from) / 4, view.to - (view.to - view.from) / 4),
  right: () => move(view.from + (view.to - view.from) / 4, view.to + (view.to - view.from) / 4),
};

function spanAt(x, y) {
  const us = timeAt(x), slack = (view.to - view.from) / (canvas.clientWidth - LEFT) * 2;
  let found = null;
  for (const span of data.spans) {
    const top = rows.get(`${span[0]}/${span[1]}`);
    if (!(y >= top && y <= top + ROW) || us < span[3] - slack || us > span[3] + span[4] + slack) continue;
    if (!found || span[2] === STOPPED || span[2] === WAIT || span[4] < found[4]) found = span;
  }
  return found;
}

function pick(span) {
  picked = span;
  const words = span ? Object.entries(span[6]).filter(([, value]) => value !== '' && value !== 0 && String(value) !== '')
    .map(([name, value]) => `${name.replace('_us', '')} ${name.endsWith('_us') ? microseconds(value) : Array.isArray(value) ? value.join('; ') : value}`) : [];
  document.getElementById('picked').textContent = span
    ? `rank ${span[0]}: ${span[5]}, ${microseconds(span[4])} from ${microseconds(span[3])} on${words.length ? ': ' + words.join(', ') : ''}` : '';
  draw();
}

let drag = null;
canvas.addEventListener('pointerdown', event => { drag = { x: event.offsetX, from: view.from, to: view.to, moved: false }; });
canvas.addEventListener('pointermove', event => {
  if (!drag) return;
  const by = (event.offsetX - drag.x) / (canvas.clientWidth - LEFT) * (drag.to - drag.from);
  drag.moved = drag.moved || Math.abs(event.offsetX - drag.x) > 4;
  if (drag.moved) move(drag.from - by, drag.to - by);
});
window.addEventListener('pointerup', event => {
  if (drag && !drag.moved && event.target === canvas) pick(spanAt(event.offsetX, event.offsetY));
  drag = null;
});
canvas.addEventListener('wheel', event => {
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.offsetX));
}, { passive: false });
canvas.addEventListener('keydown', event => {
  const action = { ArrowLeft: 'left', ArrowRight: 'right', '+': 'in', '-': 'out', Home: 'all' }[event.key];
  if (!action) return;
  event.preventDefault();
  actions[action]();
});
document.getElementById('every').addEventListener('click', event => {
  const all = event.target.getAttribute('aria-pressed') === 'false';
  event.target.setAttribute('aria-pressed', String(all));
  showRanks(all ? data.ranks.length : data.most);
  draw();
});
for (const button of document.querySelectorAll('[data-zoom]')) button.addEventListener('click', actions[button.dataset.zoom]);
for (const dot of document.querySelectorAll('[data-color]')) dot.style.background = rankColor(Number(dot.dataset.color));
const legend = document.querySelector('.legend');
for (const [text, color] of [['operation (color of the rank)', rankColor(0)], ['step', style('--link')], ['waits', style('--wait')],
  ['made no progress', style('--hot')]]) {
  const item = document.createElement('span'), dot = document.createElement('i');
  item.className = 'item';
  dot.className = 'dot';
  dot.style.background = color;
  item.append(dot, text);
  legend.append(item);
}
window.addEventListener('resize', draw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
window.timeline = { data, view, move, pick, spanAt, rows, tops, timeAt };
draw();
