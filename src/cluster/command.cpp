#include "cluster/command.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "data/example.h"

namespace evenkeel::cluster {
namespace {

std::span<std::byte> bytes_of_all(const at::Tensor& bytes_N) {
  return {static_cast<std::byte*>(bytes_N.mutable_data_ptr()), bytes_N.nbytes()};
}

}  // namespace

void Commands::give(const Command& command) {
  member_.check();
  member_.post(concat("command/", next_++), record::write(command).dump());
}

Command Commands::take() {
  const auto source = concat("command ", next_, " of rank 0");
  const Json json = parse_json(member_.wait_for(concat("command/", next_++)), source);
  return record::read<Command>(JsonView(json, source));
}

void Commands::share(const at::Tensor& bytes_N, const std::string& what) {
  member_.together(what, [&](Collective& group) { group.broadcast(bytes_of_all(bytes_N), 0); });
}

at::Tensor Commands::shared(int64_t size, const std::string& what) {
  auto bytes_N = at::empty({size}, at::kByte);
  share(bytes_N, what);
  return bytes_N;
}

double cost_of(const methods::ClientProfile& client, std::span<const data::Example> rows) {
  return static_cast<double>(data::tokens_in(rows)) * static_cast<double>(std::max<int64_t>(client.top_k, 1));
}

std::vector<int64_t> ids_of(std::span<const methods::ClientProfile> clients) {
  std::vector<int64_t> ids;
  for (const auto& client : clients) ids.push_back(client.id);
  return ids;
}

std::string ready_key(int64_t exchange, int group_rank) { return concat("ready/", exchange, "/", group_rank); }
std::string grant_key(int64_t exchange, int group_rank) { return concat("grant/", exchange, "/", group_rank); }
std::string progress_key(int64_t exchange, int group_rank) { return concat("progress/", exchange, "/", group_rank); }

}  // namespace evenkeel::cluster
