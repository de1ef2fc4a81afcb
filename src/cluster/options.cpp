#include "cluster/options.h"

#include "base/format/limits.h"
#include "base/plain/data_path.h"

namespace evenkeel::cluster {

void ClusterOptions::resolve(const config::Table& table) const {
  constexpr double kDay = 86'400;
  const auto check_seconds = [&](std::string_view key, double value) {
    table.check(value >= 0.5 && value <= kDay, key, value, "seconds, 0.5 to 86400");
  };
  table.check_integer("size", size, 0, limits::kThreads);
  table.check_integer("rank", rank, -1, limits::kThreads);
  check_seconds("timeout", timeout);
  check_seconds("start_timeout", start_timeout);
}

ClusterOptions ClusterOptions::of(const fed::RunRequest& request) {
  auto table = config::Table::load(request.file);
  for (const auto& setting : request.settings) table.set(setting);
  auto options = config::read<ClusterOptions>(table.table("cluster"));
  options.scratch = expand_home(options.scratch, "cluster.scratch");
  return options;
}

std::string ClusterOptions::text() const {
  config::Writer writer;
  ClusterOptions copy = *this;
  writer.nested("cluster", copy);
  return writer.text(true);
}

}  // namespace evenkeel::cluster
