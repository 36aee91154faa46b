#include "bench/output.h"

#include <fmt/format.h>

#include <fstream>

#include "bench/json.h"
#include "bench/whole_file.h"
#include "rondo/error.h"

namespace rondo::bench {

void write_json(const std::string& path, const Machine& machine, const Limits& limits, const std::vector<Row>& rows,
                const std::vector<Judged>& bars) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  Json all = {{"machine", to_json(machine)}, {"limits", to_json(limits)}, {"rows", list}};
  for (const Judged& bar : bars) all["bars"].push_back(to_json(bar));
  replace_file(path, all.dump(1) + "\n");
}

void write_csv(const std::string& path, const std::vector<Row>& rows) {
  std::string text = csv_header() + "\n";
  for (const Row& row : rows) text += csv_line(row) + "\n";
  replace_file(path, text);
}

std::vector<Row> read_rows(const std::string& path) {
  try {
    std::ifstream file(path);
    std::vector<Row> rows;
    const Json all = Json::parse(file);
    for (const Json& row : all.at("rows")) rows.push_back(row_from_json(row));
    return rows;
  } catch (const std::exception& error) {
    throw Exception(ErrorCode::kSystem, fmt::format("no rows of a bench in {}: {}", path, error.what()));
  }
}

}  // namespace rondo::bench
