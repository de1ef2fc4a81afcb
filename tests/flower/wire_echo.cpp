// The wire with nothing above it: a node that returns what it is sent with every byte of data changed, and a server
// that sends arrays to such nodes and checks what comes back. For tests beside Flower and for bench/wire.
//   wire_echo node  --server HOST:PORT --key FILE [--ca FILE] [--messages N] [--chunk BYTES] [--die-after pull]
//   wire_echo serve [--allow FILE] --folder FOLDER [--port PORT] [--certificate FILE --tls-key FILE]
//                   [--fab FILE --fab-id ID]
//                   [--nodes N] [--messages N] [--bytes N --arrays N] [--chunk BYTES]
//   wire_echo keygen FILE NAME
// Prints one JSON object a line; exit 1 when bytes came back wrong.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <map>
#include <thread>

#include "base/files.h"
#include "base/json.h"
#include "wire/coordinator.h"
#include "wire/node_link.h"

namespace {

using namespace evenkeel;
using namespace evenkeel::wire;
using Clock = std::chrono::steady_clock;
using Flags = std::map<std::string, std::string>;

constexpr std::byte kChange{0x5a};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

uint64_t peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

void print(const OrderedJson& line) { std::cout << line.dump() << std::endl; }

struct Memory {
  std::vector<std::vector<std::byte>> arrays;
  std::vector<ArrayHead> heads;

  Places places(const Content& content) {
    heads = content.heads();
    arrays.resize(heads.size());
    Places places;
    for (size_t i = 0; i < heads.size(); ++i) {
      arrays[i].resize(heads[i].bytes());
      places.arrays.emplace_back(arrays[i]);
    }
    return places;
  }

  void change() {
    for (auto& array : arrays)
      for (auto& byte : array) byte ^= kChange;
  }

  Arrays packed(size_t chunk_bytes) const {
    std::vector<ArrayData> data;
    for (size_t i = 0; i < arrays.size(); ++i) data.push_back({.head = heads[i], .pieces = {arrays[i]}});
    return pack_arrays(std::move(data), {.chunk_bytes = chunk_bytes});
  }
};

uint64_t number(const Flags& flags, const std::string& name, uint64_t otherwise) {
  return flags.contains(name) ? std::stoull(flags.at(name)) : otherwise;
}

// ---- node

void answer(NodeLink& link, const Instruction& instruction, Memory& memory, size_t chunk_bytes, bool die) {
  const auto begin = Clock::now();
  const uint64_t received = link.bytes_received(), sent = link.bytes_sent();
  const Content content = link.receive(instruction, [&](const Content& c) { return memory.places(c); });
  const double down_s = seconds_since(begin);
  if (die) std::quick_exit(9);
  memory.change();
  const auto back = Clock::now();
  Content reply;
  if (content.has("config")) reply.add("config", content.config());
  reply.add("metrics", Metrics{{"num-examples", int64_t{1}}, {"native", int64_t{1}}, {"down-s", down_s}});
  reply.add("arrays", memory.packed(chunk_bytes));
  link.reply(instruction, reply);
  print({{"group", instruction.metadata.group},
         {"down_bytes", link.bytes_received() - received},
         {"down_s", down_s},
         {"up_bytes", link.bytes_sent() - sent},
         {"up_s", seconds_since(back)},
         {"peak_memory", peak_memory()}});
}

int run_node(const Flags& flags) {
  const std::string server = flags.at("server");
  const size_t colon = server.rfind(':');
  NodeOptions options{.server = {.host = server.substr(0, colon), .port = std::stoi(server.substr(colon + 1))},
                      .key_file = flags.at("key"),
                      .heartbeat_s = 10,
                      .poll_s = 0.05};
  if (flags.contains("ca"))
    options.server.ca_file = flags.at("ca");
  else
    options.server.insecure = true;
  NodeLink link(options);
  link.join();
  print({{"node", std::to_string(link.id())}});
  Memory memory;
  for (uint64_t done = 0; done < number(flags, "messages", 1);) {
    const auto instruction = link.poll();
    if (!instruction) {
      link.rest();
      continue;
    }
    try {
      answer(link, *instruction, memory, number(flags, "chunk", size_t{16} << 20), flags.contains("die-after"));
      ++done;
    } catch (const RunOver&) {
      print({{"over", instruction->metadata.group}});
    }
  }
  link.leave(60);
  print({{"left", true}});
  return 0;
}

// ---- serve

Memory made(uint64_t bytes, uint64_t count) {
  Memory memory;
  uint64_t state = 1;
  for (uint64_t i = 0; i < count; ++i) {
    const auto length = static_cast<int64_t>(bytes / count / 4);
    memory.heads.push_back(
        {.name = concat("layer.", i / 2, i % 2 ? ".B" : ".A"), .dtype = "float32", .shape = {length}});
    auto& array = memory.arrays.emplace_back(memory.heads.back().bytes());
    for (size_t at = 0; at + 8 <= array.size(); at += 8) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(array.data() + at, &state, 8);
    }
  }
  return memory;
}

bool is_changed(const Memory& sent, const Memory& back) {
  if (sent.heads != back.heads) return false;
  for (size_t i = 0; i < sent.arrays.size(); ++i)
    if (!std::equal(sent.arrays[i].begin(), sent.arrays[i].end(), back.arrays[i].begin(), back.arrays[i].end(),
                    [](std::byte a, std::byte b) { return (a ^ kChange) == b; }))
      return false;
  return true;
}

std::vector<uint64_t> wait_for_nodes(const Coordinator& coordinator, uint64_t count) {
  while (true) {
    std::vector<uint64_t> online;
    for (const auto& node : coordinator.nodes())
      if (node.online) online.push_back(node.id);
    if (online.size() >= count) return online;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool exchange(Coordinator& coordinator, const Flags& flags, const Memory& memory, uint64_t round) {
  const auto nodes = wait_for_nodes(coordinator, number(flags, "nodes", 1));
  const auto begin = Clock::now();
  const Arrays packed = memory.packed(number(flags, "chunk", size_t{16} << 20));
  const double hash_s = seconds_since(begin);
  std::map<std::string, Memory> back;
  for (const uint64_t node : nodes) {
    Content content;
    content.add("arrays", packed);
    content.add("config", Config{{"server-round", static_cast<int64_t>(round)}, {"node", std::to_string(node)}});
    auto place = std::make_shared<Memory>();
    const auto id =
        coordinator.send(node, content, {.group = std::to_string(round), .place = [place](const Content& c) {
                                           Places places = place->places(c);
                                           places.owner = place;
                                           return places;
                                         }});
    back.emplace(id, Memory());
  }
  bool good = true;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto arrival = coordinator.wait(Clock::now() + std::chrono::seconds(300));
    if (!arrival || arrival->kind != Arrival::Kind::kReply) {
      print({{"round", round}, {"failed", arrival ? arrival->reason : "nothing came"}});
      return false;
    }
    good = good && is_changed(memory, *std::static_pointer_cast<Memory>(arrival->owner));
    const auto& metrics = arrival->content.metrics();
    print({{"round", round},
           {"node", std::to_string(arrival->node)},
           {"native", metrics.get_or<int64_t>("native", 0)},
           {"exact", good},
           {"bytes", arrival->bytes},
           {"hash_s", hash_s},
           {"seconds", seconds_since(begin)},
           {"peak_memory", peak_memory()}});
  }
  return good;
}

int run_serve(const Flags& flags) {
  CoordinatorOptions options{.port = static_cast<int>(number(flags, "port", 0)),
                             .insecure = !flags.contains("certificate"),
                             .folder = flags.at("folder"),
                             .threads = 32};
  if (flags.contains("allow"))
    options.allowed = read_allow_list(flags.at("allow"));
  else
    options.open = true;
  if (flags.contains("certificate")) options.tls = TlsFiles{flags.at("certificate"), flags.at("tls-key")};
  if (flags.contains("fab"))
    options.fab = flags.at("fab"), options.fab_id = flags.at("fab-id"), options.fab_version = "1.0.0";
  Coordinator coordinator(options);
  print({{"port", coordinator.port()}});
  const Memory memory = made(number(flags, "bytes", 1'000'000), number(flags, "arrays", 4));
  bool good = true;
  for (uint64_t round = 1; round <= number(flags, "messages", 1); ++round)
    good = exchange(coordinator, flags, memory, round) && good;
  return good ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    const std::string mode = count > 1 ? words[1] : "";
    if (mode == "keygen" && count == 4) {
      std::cout << openssh_line(make_key(words[2]).public_key(), words[3]) << "\n";
      return 0;
    }
    Flags flags;
    for (int i = 2; i + 1 < count; i += 2) flags[std::string(words[i]).substr(2)] = words[i + 1];
    return mode == "node" ? run_node(flags) : run_serve(flags);
  } catch (const std::exception& error) {
    std::cerr << "wire_echo: " << error.what() << "\n";
    return 1;
  }
}
