#include "flower/federation/roster.h"

#include <random>

#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/plain/sealed.h"

namespace evenkeel::flower {
namespace {

/// Returns a random name of 64 bits.
std::string new_name() {
  std::random_device device;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name(16, '0');
  for (char& digit : name) digit = kDigits[device() % kDigits.size()];
  return name;
}

struct Page {
  std::string run, offer{};
  std::vector<Member> members;
  void visit(auto& field) {
    field("run", run);
    field("members", members);
    field.optional("offer", offer);
  }
};

}  // namespace

std::string roster_key(const NodeInfo& node) {
  return node.fingerprint.empty() ? concat("node ", node.id) : node.fingerprint;
}

bool is_fingerprint(std::string_view key) { return !key.starts_with("node "); }

Roster::Roster(fs::path file) : file_(std::move(file)) {
  make_folders(file_.parent_path());
  if (path_exists(file_)) {
    load();
  } else {
    run_ = new_name();
    save();
  }
}

void Roster::load() {
  const Json json = read_sealed(file_);
  auto page = record::read<Page>({json, file_.string(), kCheckpoint});
  run_ = std::move(page.run);
  offer_ = std::move(page.offer);
  for (auto& member : page.members) members_[member.client] = std::move(member);
}

const Member* Roster::member(const NodeInfo& node) const {
  const auto key = roster_key(node);
  for (const auto& [client, member] : members_)
    if (member.key == key) return &member;
  return nullptr;
}

void Roster::add(Member member) {
  const auto known = members_.find(member.client);
  EK_CHECK(known == members_.end() || known->second.key == member.key, kInternal, "client ", member.client,
           " is played by ", known->second.key, " already");
  members_[member.client] = std::move(member);
  save();
}

size_t Roster::offer(const std::string& offer) {
  const auto digest = sha256(offer);
  if (digest == offer_) return 0;
  const size_t removed = members_.size();
  if (removed > 0) run_ = new_name();
  members_.clear();
  offer_ = digest;
  save();
  return removed;
}

std::vector<Member> Roster::remove(const std::function<bool(const Member& member)>& leaves) {
  std::vector<Member> removed;
  for (const auto& [client, member] : members_)
    if (leaves(member)) removed.push_back(member);
  for (const auto& member : removed) members_.erase(member.client);
  if (!removed.empty()) save();
  return removed;
}

void Roster::save() const {
  Page page{.run = run_, .offer = offer_, .members = {}};
  for (const auto& [client, member] : members_) page.members.push_back(member);
  write_sealed(file_, record::write(page), 2);
}

}  // namespace evenkeel::flower
