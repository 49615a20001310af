// Tables that readers sort by their column heads.
import { element } from "../page/dom";
import { focusedLink, focusLink } from "./focus";
import type { Content } from "./parts";

export interface Column<Row> {
  readonly name: string;
  readonly cell: (row: Row) => Content;
  /** What sorting goes by; a column without it cannot be sorted by. Missing values come last. */
  readonly by?: (row: Row) => number | string | null;
  readonly numeric?: boolean;
  /** Best values first when a reader asks for the column. */
  readonly descending?: boolean;
  /** Left out on narrow screens. */
  readonly optional?: boolean;
  /** The cell that names the row. */
  readonly header?: boolean;
  readonly explain?: string;
}

export interface TableOptions<Row> {
  /** Read out in place of the table; seen only by those who ask for it. */
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  /** Tells rows apart in tables that are shown again: a row keeps its place in the document, and so the focus. */
  readonly key?: (row: Row) => string;
  readonly rowClass?: (row: Row) => string;
  /** Rows shown until the reader asks for more. */
  readonly limit?: number;
}

export class DataTable<Row> {
  readonly root: HTMLElement;
  private readonly body = element("tbody");
  private readonly heads: HTMLTableCellElement[];
  private readonly more = element("button", { class: "button", type: "button", hidden: true });
  private readonly region: HTMLElement;
  private lines: ReadonlyMap<string, HTMLTableRowElement> = new Map();
  private rows: readonly Row[] = [];
  private limit: number;
  private sorted: { column: Column<Row>; descending: boolean } | null = null;

  constructor(
    private readonly options: TableOptions<Row>,
    rows: readonly Row[] = [],
  ) {
    this.limit = options.limit ?? 200;
    this.heads = options.columns.map((column) => this.head(column));
    const table = element(
      "table",
      { "aria-label": options.label },
      element("thead", {}, element("tr", {}, ...this.heads)),
    );
    table.append(this.body);
    // A region that scrolls must be reachable by keyboard.
    this.region = element(
      "div",
      { class: "scroll", role: "region", "aria-label": options.label, tabindex: "0" },
      table,
    );
    this.root = element("div", {}, this.region, this.more);
    this.more.addEventListener("click", () => {
      this.limit *= 4;
      this.draw();
      if (this.more.hidden) this.region.focus({ preventScroll: true });
    });
    this.show(rows);
  }

  /** Replaces the rows; the order that the reader chose stays, and so does the focus. */
  show(rows: readonly Row[]): void {
    this.rows = rows;
    const focused = this.body.contains(document.activeElement);
    this.draw();
    // The row with the focus is gone: the reader stays at the table.
    if (focused && !this.body.contains(document.activeElement)) this.region.focus({ preventScroll: true });
  }

  private draw(): void {
    const rows = this.inOrder();
    const known = this.lines;
    const lines = new Map<string, HTMLTableRowElement>();
    for (const [i, row] of rows.slice(0, this.limit).entries()) {
      const key = this.options.key?.(row);
      const standing = key === undefined ? undefined : known.get(key);
      const fresh = this.line(row);
      lines.set(key ?? String(i), standing ? renewed(standing, fresh) : fresh);
    }
    this.lines = lines;
    arrange(this.body, [...lines.values()]);
    this.more.hidden = rows.length <= this.limit;
    this.more.textContent = `Show more of ${rows.length}`;
  }

  private inOrder(): readonly Row[] {
    const by = this.sorted?.column.by;
    if (!this.sorted || !by) return this.rows;
    const sign = this.sorted.descending ? -1 : 1;
    return [...this.rows].sort((a, b) => {
      const [left, right] = [by(a), by(b)];
      if (left === null || right === null) return Number(left === null) - Number(right === null);
      return sign * (typeof left === "string" ? left.localeCompare(String(right)) : left - Number(right));
    });
  }

  private head(column: Column<Row>): HTMLTableCellElement {
    const cell = element("th", {
      scope: "col",
      class: cellClass(column),
      ...(column.explain && { title: column.explain }),
    });
    if (!column.by) {
      cell.append(column.name);
      return cell;
    }
    const button = element("button", { type: "button" }, column.name);
    button.addEventListener("click", () => this.sortBy(column));
    cell.append(button);
    return cell;
  }

  private sortBy(column: Column<Row>): void {
    const again = this.sorted?.column === column;
    this.sorted = { column, descending: again ? !this.sorted?.descending : Boolean(column.descending) };
    this.heads.forEach((head, i) => {
      if (this.options.columns[i] !== column) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.sorted?.descending ? "descending" : "ascending");
    });
    this.draw();
  }

  private line(row: Row): HTMLTableRowElement {
    const cells = this.options.columns.map((column) => {
      const attributes = { class: cellClass(column), ...(column.header && { scope: "row" }) };
      return element(column.header ? "th" : "td", attributes, column.cell(row));
    });
    return element("tr", { class: this.options.rowClass?.(row) ?? "" }, ...cells);
  }
}

/** A table, and what stands in its place while it has no rows. */
export class Listed<Row> {
  readonly root: HTMLElement;
  private readonly table: DataTable<Row>;

  constructor(
    options: TableOptions<Row>,
    private readonly nothing: HTMLElement,
  ) {
    this.table = new DataTable(options);
    this.root = element("div", {}, nothing, this.table.root);
    this.show([]);
  }

  show(rows: readonly Row[]): void {
    this.nothing.hidden = rows.length > 0;
    this.table.root.hidden = rows.length === 0;
    this.table.show(rows);
  }
}

/** The row that stands, showing what a fresh one shows: cells that say the same stay as they are. */
function renewed(standing: HTMLTableRowElement, fresh: HTMLTableRowElement): HTMLTableRowElement {
  standing.className = fresh.className;
  for (const [i, cell] of [...fresh.cells].entries()) {
    const old = standing.cells[i];
    if (!old || old.isEqualNode(cell)) continue;
    const link = focusedLink(old);
    old.replaceWith(cell);
    focusLink(cell, link);
  }
  return standing;
}

/** Makes these the children. The one with the focus does not move, the others move around it: moving takes the focus. */
function arrange(parent: HTMLElement, wanted: readonly HTMLElement[]): void {
  const at = wanted.findIndex((child) => child.contains(document.activeElement));
  const fixed = wanted[at];
  if (!fixed) return parent.replaceChildren(...wanted);
  for (const child of [...parent.children]) if (child !== fixed) child.remove();
  fixed.before(...wanted.slice(0, at));
  fixed.after(...wanted.slice(at + 1));
}

function cellClass<Row>(column: Column<Row>): string {
  return [column.numeric && "number", column.optional && "optional"].filter(Boolean).join(" ");
}
