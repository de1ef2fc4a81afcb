/// \file  Provides a coordinator on loopback and nodes that it allows, for tests.
#pragma once

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/plain/clock.h"
#include "base/testing.h"
#include "flower/http/http_client.h"
#include "flower/node/node_link.h"
#include "flower/server/coordinator.h"

namespace evenkeel::testing {

using namespace std::chrono_literals;

/// A folder with the key files node-0.pem, node-1.pem, ..., and the allow-list for them.
struct Keys {
  explicit Keys(int count) {
    for (int i = 0; i < count; ++i)
      allowed.push_back({.key = flower::make_key(file(i)).public_key(), .name = "node-" + std::to_string(i)});
  }
  fs::path file(int i) const { return folder.path() / ("node-" + std::to_string(i) + ".pem"); }
  fs::path folder_of(int i) const { return file(i).replace_extension(".memory"); }

  testing::TemporaryFolder folder;
  std::vector<flower::AllowedKey> allowed;
};

/// Returns the options of a coordinator on loopback that allows the keys.
inline flower::CoordinatorOptions options_for(const Keys& keys) {
  return {.insecure = true, .allowed = keys.allowed, .folder = keys.folder.path() / "federation", .threads = 8};
}

inline flower::NodeOptions node_options(const flower::Coordinator& coordinator, const Keys& keys, int i) {
  return {.server = {.port = coordinator.port(), .insecure = true},
          .key_file = keys.file(i),
          .folder = keys.folder_of(i),
          .heartbeat_s = 10,
          .poll_s = 0.01,
          .call_timeout_s = 60};
}

/// Returns the id of the node with this name; 0 if there is none.
inline uint64_t id_of(const flower::Coordinator& coordinator, const std::string& name) {
  for (const auto& node : coordinator.nodes())
    if (node.name == name) return node.id;
  return 0;
}

inline bool is_online(const flower::Coordinator& coordinator, uint64_t id) {
  for (const auto& node : coordinator.nodes())
    if (node.id == id) return node.online;
  return false;
}

inline auto in(double seconds) { return std::chrono::steady_clock::now() + steady_duration(seconds); }

/// Returns the time until which a test waits for what must come. A busy machine is slow.
inline auto patience() { return in(300); }

/// Waits for an instruction.
inline flower::Instruction next_instruction(flower::NodeLink& link) {
  for (const auto end = patience(); std::chrono::steady_clock::now() < end; link.rest())
    if (auto instruction = link.poll()) return *instruction;
  throw std::runtime_error("no instruction came");
}

/// Buffers for arrays, with a BufferAllocator that fills them.
struct Memory {
  std::vector<std::vector<std::byte>> arrays;
  std::vector<flower::ArrayHead> heads;

  static flower::BufferAllocator into(const std::shared_ptr<Memory>& memory) {
    return [memory](const flower::Content& content) {
      flower::ReceiveBuffers places{.arrays = {}, .owner = memory};
      memory->heads = content.heads();
      memory->arrays.clear();
      for (const auto& head : memory->heads) memory->arrays.emplace_back(head.bytes());
      for (auto& array : memory->arrays) places.arrays.emplace_back(array);
      return places;
    };
  }
};

/// An array with pseudo-random bytes from a seed; with seed 0 all bytes are zero.
struct OwnedArray {
  OwnedArray(flower::ArrayHead of, uint64_t seed) : head(std::move(of)), bytes(head.bytes()) {
    uint64_t state = seed;
    for (auto& byte : bytes) {
      state = state * 6364136223846793005u + (seed ? 1442695040888963407u : 0);
      byte = static_cast<std::byte>(state >> 56);
    }
  }
  flower::ArrayData data() const { return {.head = head, .pieces = {bytes}}; }

  flower::ArrayHead head;
  std::vector<std::byte> bytes;
};

inline std::vector<flower::ArrayData> data_of(const std::vector<OwnedArray>& arrays) {
  std::vector<flower::ArrayData> all;
  for (const auto& array : arrays) all.push_back(array.data());
  return all;
}

/// Sends raw calls that are signed with a key, which the server may or may not know.
struct RawCaller {
  RawCaller(const flower::Coordinator& coordinator, const fs::path& key_file)
      : signer(flower::Key::load(key_file)),
        client({.port = coordinator.port(), .insecure = true}, 60, size_t{1} << 27) {}

  flower::Answer post(std::string_view path, std::string_view body) {
    auto headers = signer.headers();
    headers.instance.clear();  // as another program
    return client.post(path, headers, body);
  }

  flower::Signer signer;
  flower::HttpClient client;
};

}  // namespace evenkeel::testing
