#include "fed/run/partition_file.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/sealed.h"
#include "fed/store/moved_rows.h"
#include "fed/store/run_files.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kPartition = run_file("partition.json");

OrderedJson numbers_of(const std::vector<FileRow>& rows) {
  auto json = OrderedJson::array();
  for (const auto& row : rows) json.push_back(row.row);
  return json;
}

OrderedJson files_of(const std::vector<FileRow>& rows) {
  auto json = OrderedJson::array();
  for (const auto& row : rows) json.push_back(row.file ? OrderedJson(*row.file) : OrderedJson());
  return json;
}

/// Returns true if all rows are of the first file, or all are generated.
bool are_of_one_file(const Shards& shards) {
  const auto file = shards.files.empty() ? std::optional<size_t>() : std::optional<size_t>(0);
  const auto all_of_it = [&](const std::vector<FileRow>& rows) {
    return std::all_of(rows.begin(), rows.end(), [&](const FileRow& row) { return row.file == file; });
  };
  return all_of_it(shards.held_out) && std::all_of(shards.rows.begin(), shards.rows.end(), all_of_it);
}

OrderedJson partition_json(const Shards& shards) {
  auto clients = OrderedJson::array(), files = OrderedJson::array();
  for (const auto& rows : shards.rows) clients.push_back(numbers_of(rows)), files.push_back(files_of(rows));
  OrderedJson json = {{"files", shards.files},
                      {"cut", shards.cut},
                      {"without_target", shards.without_target},
                      {"clients", std::move(clients)},
                      {"held_out", numbers_of(shards.held_out)}};
  if (!are_of_one_file(shards)) {
    json["file_of_client_rows"] = std::move(files);
    json["file_of_held_out"] = files_of(shards.held_out);
  }
  if (!shards.files_of.empty()) json["client_files"] = shards.files_of;
  return json;
}

}  // namespace

void write_partition(const fs::path& folder, const Shards& shards) {
  write_sealed(folder / kPartition, partition_json(shards));
}

void check_partition(const fs::path& folder, const Shards& shards) {
  const auto file = folder / kPartition;
  EK_CHECK(
      path_exists(file), kCheckpoint, file.string(),
      " is missing: put it back; by it a resumed run makes sure that every client has the rows that it began with");
  EK_CHECK(partition_now(folder, read_sealed(file)) == Json(partition_json(shards)), kCheckpoint, file.string(),
           ": config and data deal out other rows than the run was made with");
}

std::vector<std::string> files_in_partition(const fs::path& folder) {
  const auto file = folder / kPartition;
  if (!path_exists(file)) return {};
  const auto partition = partition_now(folder, read_sealed(file));
  return JsonView(partition, file.string(), kCheckpoint).at("files").strings();
}

}  // namespace evenkeel::fed
