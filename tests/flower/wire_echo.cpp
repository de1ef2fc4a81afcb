// Exercises the Flower protocol alone: a node that returns messages with every byte of data changed, and a server that
// sends arrays to such nodes and checks the replies. Used by tests with Flower and by bench/wire.
//   wire_echo node  --server HOST:PORT --key FILE [--ca FILE] [--messages N] [--chunk BYTES] [--die-after pull]
//                   [--count N: so many nodes in this process, FILE.0 to FILE.N-1 their keys] [--spool FOLDER]
//   wire_echo serve [--allow FILE] --folder FOLDER [--port PORT] [--certificate FILE --tls-key FILE]
//                   [--fab FILE --fab-id ID]
//                   [--nodes N: to wait for] [--active N: of them in a message's turn] [--spool FOLDER]
//                   [--messages N] [--bytes N --arrays N] [--chunk BYTES]
//   wire_echo keygen FILE NAME
// Prints one JSON object per line. Exits with 1 if bytes came back wrong.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "base/plain/address.h"
#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "flower/format/objects.h"
#include "flower/node/node_link.h"
#include "flower/server/coordinator.h"

namespace {

using namespace evenkeel;
using namespace evenkeel::flower;
using Clock = std::chrono::steady_clock;
using Flags = std::map<std::string, std::string>;

constexpr std::byte kChange{0x5a};

uint64_t peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

void print(const OrderedJson& line) { std::cout << line.dump() + "\n" << std::flush; }

/// Anonymous memory, or an unnamed file in `spool`, whose pages the system may write out.
class Array {
 public:
  Array(size_t size, const std::string& spool) : size_(size) {
    const int fd = spool.empty() ? -1 : ::open(spool.c_str(), O_TMPFILE | O_RDWR, 0600);
    if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(size)) != 0) throw std::runtime_error("no room in " + spool);
    void* at = ::mmap(nullptr, std::max<size_t>(size, 1), PROT_READ | PROT_WRITE,
                      fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (fd >= 0) ::close(fd);
    if (at == MAP_FAILED) throw std::runtime_error("no memory for an array");
    data_ = static_cast<std::byte*>(at);
  }
  Array(Array&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  Array& operator=(Array&&) = delete;
  ~Array() {
    if (data_) ::munmap(data_, std::max<size_t>(size_, 1));
  }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_;
};

struct Memory {
  std::string spool{};
  std::vector<Array> arrays{};
  std::vector<flower::ArrayHead> heads{};

  flower::ReceiveBuffers places(const flower::Content& content) {
    if (heads != content.heads()) {
      heads = content.heads();
      arrays.clear();
      for (const auto& head : heads) arrays.emplace_back(head.bytes(), spool);
    }
    flower::ReceiveBuffers places;
    for (const auto& array : arrays) places.arrays.emplace_back(array.bytes());
    return places;
  }

  void change() {
    for (auto& array : arrays)
      for (auto& byte : array.bytes()) byte ^= kChange;
  }

  flower::Arrays packed(size_t chunk_bytes) const {
    std::vector<flower::ArrayData> data;
    for (size_t i = 0; i < arrays.size(); ++i) data.push_back({.head = heads[i], .pieces = {arrays[i].bytes()}});
    return flower::pack_arrays(std::move(data), {.chunk_bytes = chunk_bytes});
  }
};

std::string text(const Flags& flags, const std::string& name) {
  return flags.contains(name) ? flags.at(name) : std::string();
}

uint64_t number(const Flags& flags, const std::string& name, uint64_t otherwise) {
  return flags.contains(name) ? std::stoull(flags.at(name)) : otherwise;
}

// ---- node

void answer(flower::NodeLink& link, const flower::Instruction& instruction, Memory& memory, size_t chunk_bytes,
            bool die) {
  const auto begin = Clock::now();
  const flower::Content content = link.receive(instruction, [&](const flower::Content& c) { return memory.places(c); });
  const double down_s = seconds_since(begin);
  if (die) std::quick_exit(9);
  memory.change();
  const auto back = Clock::now();
  flower::Content reply;
  if (content.has("config")) reply.add("config", content.config());
  reply.add("metrics", flower::Metrics{{"num-examples", int64_t{1}}, {"native", int64_t{1}}, {"down-s", down_s}});
  reply.add("arrays", memory.packed(chunk_bytes));
  link.reply(instruction, reply);
  print({{"group", instruction.metadata.group},
         {"down_s", down_s},
         {"up_s", seconds_since(back)},
         {"peak_memory", peak_memory()}});
}

void be_a_node(const Flags& flags, const std::string& key) {
  const auto server = parse_address(flags.at("server"), "--server");
  flower::NodeOptions options{.server = {.host = server.host, .port = server.port},
                              .key_file = key,
                              .folder = key + ".memory",
                              .heartbeat_s = flags.contains("count") ? 30.0 : 10.0,
                              .poll_s = flags.contains("count") ? 0.5 : 0.05};
  if (flags.contains("ca"))
    options.server.ca_file = flags.at("ca");
  else
    options.server.insecure = true;
  flower::NodeLink link(options);
  link.join();
  print({{"node", std::to_string(link.id())}});
  Memory memory{.spool = text(flags, "spool")};
  for (uint64_t done = 0; done < number(flags, "messages", 1);) {
    const auto instruction = link.poll();
    if (!instruction) {
      link.rest();
      continue;
    }
    try {
      answer(link, *instruction, memory, number(flags, "chunk", size_t{16} << 20), flags.contains("die-after"));
      ++done;
    } catch (const flower::RunOver&) {
      print({{"over", instruction->metadata.group}});
    }
  }
  link.leave(60);
  print({{"left", true}});
}

int run_nodes(const Flags& flags) {
  if (!flags.contains("count")) {
    be_a_node(flags, flags.at("key"));
    return 0;
  }
  std::vector<std::jthread> nodes;
  for (uint64_t i = 0; i < number(flags, "count", 1); ++i) {
    const std::string key = concat(flags.at("key"), ".", i);
    flower::make_key(key);
    nodes.emplace_back([&flags, key] {
      try {
        be_a_node(flags, key);
      } catch (const std::exception& error) {
        print({{"node_failed", error.what()}});
      }
    });
  }
  return 0;
}

// ---- serve

Memory made(uint64_t bytes, uint64_t count, const std::string& spool) {
  Memory memory{.spool = spool};
  uint64_t state = 1;
  for (uint64_t i = 0; i < count; ++i) {
    const auto length = static_cast<int64_t>(bytes / count / 4);
    memory.heads.push_back(
        {.name = concat("layer.", i / 2, i % 2 ? ".B" : ".A"), .dtype = "float32", .shape = {length}});
    const auto array = memory.arrays.emplace_back(memory.heads.back().bytes(), spool).bytes();
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
    if (!std::ranges::equal(sent.arrays[i].bytes(), back.arrays[i].bytes(),
                            [](std::byte a, std::byte b) { return (a ^ kChange) == b; }))
      return false;
  return true;
}

/// Waits until `count` nodes are online. Returns all of them, or the next `active` ones in the order of rounds.
std::vector<uint64_t> wait_for_nodes(const flower::Coordinator& coordinator, uint64_t count, uint64_t active,
                                     uint64_t round) {
  while (true) {
    std::vector<uint64_t> online;
    for (const auto& node : coordinator.nodes())
      if (node.online) online.push_back(node.id);
    if (online.size() >= count) {
      std::vector<uint64_t> turn;
      for (uint64_t i = 0; i < std::min<uint64_t>(active, online.size()); ++i)
        turn.push_back(online[(round * active + i) % online.size()]);
      return turn;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool exchange(flower::Coordinator& coordinator, const Flags& flags, const Memory& memory, uint64_t round) {
  const auto nodes = wait_for_nodes(coordinator, number(flags, "nodes", 1), number(flags, "active", 1'000'000), round);
  const auto begin = Clock::now();
  const flower::Arrays packed = memory.packed(number(flags, "chunk", size_t{16} << 20));
  const double hash_s = seconds_since(begin);
  for (const uint64_t node : nodes) {
    flower::Content content;
    content.add("arrays", packed);
    content.add("config",
                flower::Config{{"server-round", static_cast<int64_t>(round)}, {"node", std::to_string(node)}});
    auto place = std::make_shared<Memory>(Memory{.spool = text(flags, "spool")});
    coordinator.send(node, content, {.group = std::to_string(round), .place = [place](const flower::Content& c) {
                                       flower::ReceiveBuffers places = place->places(c);
                                       places.owner = place;
                                       return places;
                                     }});
  }
  bool good = true;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto arrival = coordinator.wait(Clock::now() + std::chrono::seconds(1500));
    if (!arrival || arrival->kind != flower::Arrival::Kind::kReply) {
      print({{"round", round}, {"failed", arrival ? arrival->reason : "nothing came"}});
      return false;
    }
    good = good && is_changed(memory, *std::static_pointer_cast<Memory>(arrival->owner));
    const auto& metrics = arrival->content.metrics();
    print({{"round", round},
           {"node", std::to_string(arrival->node)},
           {"native", metrics.find("native") ? metrics.at<int64_t>("native") : 0},
           {"exact", good},
           {"bytes", arrival->bytes},
           {"hash_s", hash_s},
           {"seconds", seconds_since(begin)},
           {"peak_memory", peak_memory()}});
  }
  return good;
}

int run_serve(const Flags& flags) {
  flower::CoordinatorOptions options{.port = static_cast<int>(number(flags, "port", 0)),
                                     .insecure = !flags.contains("certificate"),
                                     .folder = flags.at("folder"),
                                     .threads = 32};
  if (flags.contains("allow"))
    options.allowed = flower::read_allow_list(flags.at("allow"));
  else
    options.open = true;
  if (flags.contains("certificate")) options.tls = flower::TlsFiles{flags.at("certificate"), flags.at("tls-key")};
  if (flags.contains("fab"))
    options.fab = flags.at("fab"), options.fab_id = flags.at("fab-id"), options.fab_version = "1.0.0";
  flower::Coordinator coordinator(options);
  print({{"port", coordinator.port()}});
  const Memory memory = made(number(flags, "bytes", 1'000'000), number(flags, "arrays", 4), text(flags, "spool"));
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
      std::cout << flower::openssh_line(flower::make_key(words[2]).public_key(), words[3]) << "\n";
      return 0;
    }
    Flags flags;
    for (int i = 2; i + 1 < count; i += 2) flags[std::string(words[i]).substr(2)] = words[i + 1];
    return mode == "node" ? run_nodes(flags) : run_serve(flags);
  } catch (const std::exception& error) {
    std::cerr << "wire_echo: " << error.what() << "\n";
    return 1;
  }
}
