/* The list of turns: the tree with its branches. A turn goes to its answer. */

/* Depth of each turn: the forks between it and the beginning. */
function depths(twin) {
  const nodes = new Map(twin.nodes.map(node => [node.node, node]));
  const depth = new Map();
  for (const node of twin.nodes) {
    const parent = nodes.get(node.parent);
    depth.set(node.node, parent ? depth.get(node.parent) + (parent.branches > 1 || node.cut ? 1 : 0) : 0);
  }
  return depth;
}

export function turnList(session, go) {
  const { twin } = session;
  const depth = depths(twin);
  const box = document.createElement("details");
  box.className = "tk-turns";
  box.open = matchMedia("(min-width: 1000px)").matches && twin.turns.length > 1;
  const title = document.createElement("summary");
  const forks = twin.nodes.filter(node => node.branches > 1).length;
  title.textContent = `${counted(twin.turns.length, "turn")}, ${counted(forks, "fork")}`;
  const list = document.createElement("ol");
  list.append(...twin.turns.map(turn => turnItem(session, turn, depth.get(turn.node) ?? 0, go)));
  box.append(title, list);
  return box;
}

/* The number of the turn that a turn goes on from, if that is not the one before it. */
function wentOnFrom(session, turn) {
  const parent = session.turn(turn.parent);
  return parent && parent.number !== turn.number - 1 ? ` ← ${parent.number}` : "";
}

function turnItem(session, turn, depth, go) {
  const item = document.createElement("li");
  item.className = `tk-depth-${Math.min(depth, 8)}`;
  const button = document.createElement("button");
  button.type = "button";
  const hands = turn.stretches.length > 1 ? ` ${turn.stretches.length - 1}↷` : "";
  const trained = turn.trained === turn.length ? "●" : turn.trained ? "◐" : "○";
  button.textContent = `${trained} ${turn.number}${wentOnFrom(session, turn)} ${turn.match_rule} ${turn.length.toLocaleString("en")}${hands}`;
  button.title = `${turn.trained.toLocaleString("en")} of ${turn.length.toLocaleString("en")} tokens trained, ${turn.finish_reason || turn.state}`;
  const node = session.node(turn.node);
  button.disabled = !node || !session.size;
  button.addEventListener("click", () => go(Math.min(node.begin, session.size - 1)));
  item.append(button);
  return item;
}

function counted(number, thing) {
  return `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
}
