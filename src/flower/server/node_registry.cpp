#include "flower/server/node_registry.h"

#include <openssl/rand.h>

#include "base/plain/base64.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/sealed.h"
#include "base/plain/text.h"
#include "flower/http/http_server.h"

namespace evenkeel::flower {
namespace {

constexpr auto kBetweenWarnings = std::chrono::seconds(10);

/// Returns a random id. 0 means no node and 1 is the server.
uint64_t random_id() {
  uint64_t id = 0;
  while (id < 2) {
    EK_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&id), sizeof id) == 1, kInternal, "no random bytes");
    id >>= 1;  // fits an int64
  }
  return id;
}

/// Reads an id that random_id() may have made. \throws kCheckpoint for any other text
uint64_t id_in(const JsonView& text) {
  const auto id = parse_number<uint64_t>(text.string());
  text.require(id && *id >= 2 && *id >> 63 == 0, " is \"", shown(text.string()), "\", allowed: 2 to 2^63 - 1");
  return *id;
}

}  // namespace

Registry::Registry(const CoordinatorOptions& options)
    : file_(options.folder / "nodes.json"),
      limits_(options.node_limits),
      open_(options.open),
      most_(options.registered) {
  make_folders(options.folder);
  const std::lock_guard lock(mutex_);
  take_list(options.allowed);
  load();
  if (run_id_ == 0) run_id_ = random_id();
  for (const auto& allowed : options.allowed)
    if (!ids_.contains(allowed.key.openssh_blob())) insert(allowed.key);
  save();
}

void Registry::take_list(const std::vector<AllowedKey>& keys) {
  allowed_.clear();
  fingerprints_.clear();
  for (const auto& [key, name, replaces] : keys) {
    allowed_.emplace(key.openssh_blob(), Permit{name, replaces});
    fingerprints_.insert(key.fingerprint());
  }
}

std::vector<uint64_t> Registry::allow(const std::vector<AllowedKey>& keys) {
  const std::lock_guard lock(mutex_);
  std::set<std::string> before;
  for (const auto& [key, permit] : allowed_) before.insert(key);
  take_list(keys);
  for (const auto& allowed : keys)
    if (!ids_.contains(allowed.key.openssh_blob())) insert(allowed.key);
  std::vector<uint64_t> removed;
  for (auto& [id, node] : nodes_) {
    const auto& blob = node.key.openssh_blob();
    if (allowed_.contains(blob)) {
      node.name = name_of(node.key);
    } else if (before.contains(blob)) {
      node.active = false;
      removed.push_back(id);
    }
  }
  save();
  return removed;
}

void Registry::load() {
  if (!path_exists(file_)) return;
  const Json json = read_sealed(file_);
  const JsonView view(json, file_.string(), kCheckpoint);
  run_id_ = id_in(view.at("run"));
  for (const auto& entry : view.at("nodes").items()) {
    const auto blob = from_base64(entry.at("key").string());
    if (!blob) entry.refuse(" has no key");
    const auto key = PublicKey::from_openssh(*blob, entry.place());
    const uint64_t id = id_in(entry.at("id"));
    const bool is_new = nodes_.emplace(id, Node{.key = key, .name = name_of(key)}).second;
    entry.require(ids_.emplace(key.openssh_blob(), id).second && is_new, " has the id or the key of an earlier node");
  }
}

void Registry::save() const {
  OrderedJson nodes = OrderedJson::array();
  for (const auto& [id, node] : nodes_)
    nodes.push_back({{"id", std::to_string(id)}, {"name", node.name}, {"key", to_base64(node.key.openssh_blob())}});
  write_sealed(file_, {{"run", std::to_string(run_id_)}, {"nodes", nodes}}, 1);
}

std::string Registry::name_of(const PublicKey& key) const {
  const auto allowed = allowed_.find(key.openssh_blob());
  return allowed == allowed_.end() ? key.fingerprint() : allowed->second.name;
}

Registry::Node& Registry::registered(uint64_t node) {
  const auto entry = nodes_.find(node);
  if (entry == nodes_.end()) throw Refusal{.status = 401, .detail = "the node is not registered"};
  return entry->second;
}

uint64_t Registry::insert(const PublicKey& key) {
  const uint64_t id = random_id();
  nodes_.emplace(id, Node{.key = key, .name = name_of(key)});
  ids_[key.openssh_blob()] = id;
  return id;
}

bool Registry::accepts(const PublicKey& key) const {
  const std::lock_guard lock(mutex_);
  return open_ || allowed_.contains(key.openssh_blob());
}

bool Registry::accepts_fingerprint(const std::string& fingerprint) const {
  const std::lock_guard lock(mutex_);
  return open_ || fingerprints_.contains(fingerprint);
}

std::optional<uint64_t> Registry::id_of(const PublicKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto entry = ids_.find(key.openssh_blob());
  return entry == ids_.end() ? std::nullopt : std::optional(entry->second);
}

uint64_t Registry::add(const PublicKey& key) {
  if (!open_) throw Refusal{.status = 412, .code = 2001, .detail = "nodes are registered by the list of allowed keys"};
  const std::lock_guard lock(mutex_);
  if (const auto entry = ids_.find(key.openssh_blob()); entry != ids_.end()) return entry->second;
  if (nodes_.size() >= most_)
    throw Refusal{.status = 412, .detail = concat(most_, " nodes are registered, which is all there may be")};
  const uint64_t id = insert(key);
  save();
  return id;
}

void Registry::activate(uint64_t node, double heartbeat_s, const std::string& instance,
                        const std::function<void()>& before) {
  const std::lock_guard lock(mutex_);
  Node& found = registered(node);
  if (online(found))
    throw Refusal{.status = 412,
                  .code = 2004,
                  .detail =
                      "the node is online: another process has its key, or one that died "
                      "less than two heartbeats ago"};
  if (!(heartbeat_s >= 10 && heartbeat_s <= 1800))
    throw Refusal{.status = 400,
                  .code = 2003,
                  .detail = concat("a heartbeat interval of ", heartbeat_s, " s, allowed: 10 to 1800")};
  before();
  found.heartbeat_s = heartbeat_s;
  found.instance = instance;
  found.active = true;
  found.called_at = Clock::now();
  found.last_call = now_seconds();
}

void Registry::sign_off(uint64_t node) {
  const std::lock_guard lock(mutex_);
  registered(node).active = false;
}

void Registry::remove(uint64_t node) {
  if (!open_) throw Refusal{.status = 412, .code = 2002, .detail = "nodes are registered by the list of allowed keys"};
  const std::lock_guard lock(mutex_);
  ids_.erase(registered(node).key.openssh_blob());
  nodes_.erase(node);
  save();
}

void Registry::set_heartbeat_interval(uint64_t node, double heartbeat_s) {
  const std::lock_guard lock(mutex_);
  if (heartbeat_s >= 10 && heartbeat_s <= 1800) registered(node).heartbeat_s = heartbeat_s;
}

void Registry::record_call(uint64_t node, const std::string& program, const std::string& instance) {
  const std::lock_guard lock(mutex_);
  Node& found = registered(node);
  if (found.instance.empty()) found.instance = instance;
  if (!instance.empty() && instance != found.instance)
    throw Refusal{.status = 409, .detail = "another process has joined with this node's key: a key is for one machine"};
  found.active = true;
  found.called_at = Clock::now();
  found.last_call = now_seconds();
  if (found.program.empty()) found.program = shown(program, 60);
}

bool Registry::charge(uint64_t node) {
  const std::lock_guard lock(mutex_);
  Node& found = registered(node);
  const auto now = Clock::now();
  const double passed = std::chrono::duration<double>(now - found.charged_at).count();
  found.calls = std::min(limits_.burst, found.calls + passed * limits_.calls_per_s);
  found.charged_at = now;
  if (found.calls < 1) return false;
  found.calls -= 1;
  return true;
}

void Registry::uncharge(uint64_t node) {
  const std::lock_guard lock(mutex_);
  if (const auto entry = nodes_.find(node); entry != nodes_.end()) entry->second.calls += 1;
}

void Registry::record_refusal(uint64_t node, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto entry = nodes_.find(node);
  if (entry == nodes_.end()) return;
  Node& found = entry->second;
  ++found.refused;
  found.last_refusal = shown(why, 300);
  if (found.refused > 1 && Clock::now() - found.warned_at < kBetweenWarnings) return;
  found.warned_at = Clock::now();
  log::warning("[serve] node ", shown(found.name), " is refused (", found.refused, " so far): ", found.last_refusal);
}

bool Registry::online(const Node& node) const {
  return node.active && Clock::now() - node.called_at < std::chrono::duration<double>(2 * node.heartbeat_s);
}

bool Registry::online(uint64_t node) const {
  const std::lock_guard lock(mutex_);
  const auto entry = nodes_.find(node);
  return entry != nodes_.end() && online(entry->second);
}

std::string Registry::name(uint64_t node) const {
  const std::lock_guard lock(mutex_);
  const auto entry = nodes_.find(node);
  return entry == nodes_.end() ? "?" : entry->second.name;
}

std::vector<NodeInfo> Registry::nodes() const {
  const std::lock_guard lock(mutex_);
  std::vector<NodeInfo> infos;
  for (const auto& [id, node] : nodes_) {
    const auto permit = allowed_.find(node.key.openssh_blob());
    if (!open_ && permit == allowed_.end()) continue;
    infos.push_back({.id = id,
                     .name = node.name,
                     .fingerprint = node.key.fingerprint(),
                     .replaces = permit == allowed_.end() ? "" : permit->second.replaces,
                     .online = online(node),
                     .last_beat = node.last_call,
                     .program = node.program,
                     .refused = node.refused,
                     .last_refusal = node.last_refusal});
  }
  return infos;
}

}  // namespace evenkeel::flower
