#include "privacy/ledger.h"

#include <array>
#include <functional>

#include "base/format/record.h"
#include "base/plain/chained_lines.h"
#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/sealed.h"
#include "crypto/hkdf.h"
#include "privacy/key_file.h"

namespace evenkeel::privacy {
namespace {

constexpr const char *kHeadFile = "privacy.head.json", *kKeyFile = "privacy.key", *kPlan = "plan",
                     *kRelease = "release", *kKeyDigest = "key_digest";

/// The last line that was known when a line was added.
struct Head {
  int64_t lines = 0;
  std::string digest;

  void visit(auto& field) {
    field("lines", lines);
    field("digest", digest);
  }
};

/// Returns a digest that tells keys apart and reveals nothing of them.
std::string digest_of(const crypto::Secret& key) {
  return sha256(crypto::hkdf_expand(key, "evenkeel dp key digest 1").view());
}

Head head_of(const fs::path& folder) {
  const auto file = folder / kHeadFile;
  if (!path_exists(file)) return {};
  const Json json = read_sealed(file);
  return record::read<Head>({json, file.string(), kCheckpoint});
}

/// Reads all lines of a ledger. \return their number. \throws kCheckpoint when lines were changed or removed
int64_t read_lines(const fs::path& folder,
                   const std::function<void(const std::string& kind, const JsonView&)>& on_line) {
  const auto file = folder / Ledger::kFile;
  const auto head = head_of(folder);
  if (!path_exists(file)) {
    EK_CHECK(head.lines == 0, kCheckpoint, file.string(), " is missing, it had ", head.lines, " lines");
    return 0;
  }
  bool holds_head = head.lines == 0;
  const auto found = check_chain(file, [&](const ChainedLine& line) {
    holds_head |= line.digest == head.digest;
    on_line(line.view.at("kind").string(), line.view);
  });
  if (found.fault) throw found.fault->with_advice("a privacy ledger that was changed is not used");
  EK_CHECK(holds_head, kCheckpoint, file.string(), " has other lines than when it was used last: it had ", head.lines,
           "; a privacy ledger that was changed is not used");
  return found.lines;
}

}  // namespace

bool Ledger::exists(const fs::path& folder) { return path_exists(folder / kFile) || path_exists(folder / kHeadFile); }

std::vector<Release> Ledger::releases(const fs::path& folder) {
  std::vector<Release> all;
  read_lines(folder, [&](const std::string& kind, const JsonView& view) {
    if (kind == kRelease) all.push_back(record::read<Release>(view));
  });
  return all;
}

std::vector<Plan> Ledger::plans(const fs::path& folder) {
  std::vector<Plan> all;
  read_lines(folder, [&](const std::string& kind, const JsonView& view) {
    if (kind == kPlan) all.push_back(record::read<Plan>(view));
  });
  return all;
}

Ledger::Ledger(const fs::path& folder) : folder_(folder) {
  make_folders(folder);
  lock_.emplace(folder);
  std::string key_digest;
  lines_ = read_lines(folder, [&](const std::string& kind, const JsonView& view) {
    key_digest = view.at(kKeyDigest).string();
    if (kind == kPlan) plans_.push_back(record::read<Plan>(view));
    if (kind == kRelease) enter(record::read<Release>(view));
  });
  EK_CHECK(lines_ == 0 || path_exists(folder / kKeyFile), kCheckpoint, (folder / kKeyFile).string(),
           " is missing: without it, this ledger cannot go on");
  key_ = key_in(folder / kKeyFile);
  // Another key would give a repeated release new noise, for which nothing was charged.
  EK_CHECK(lines_ == 0 || key_digest == digest_of(key_), kCheckpoint, (folder / kKeyFile).string(),
           " is not the key that this ledger was used with: without it, it cannot go on");
}

std::optional<Plan> Ledger::plan_of(const std::string& run) const {
  for (auto plan = plans_.rbegin(); plan != plans_.rend(); ++plan)
    if (plan->run == run) return *plan;
  return std::nullopt;
}

void Ledger::append(const char* kind, const OrderedJson& fields) {
  OrderedJson line{{"kind", kind}, {"time", utc_now()}, {kKeyDigest, digest_of(key_)}};
  for (const auto& [key, value] : fields.items()) line[key] = value;
  const auto digest = append_chained(folder_ / kFile, line, Flush::kNow);
  write_sealed(folder_ / kHeadFile, record::write(Head{++lines_, digest}));
}

void Ledger::add(const Plan& plan) {
  append(kPlan, record::write(plan));
  plans_.push_back(plan);
}

void Ledger::add(Release release, double delta) {
  auto after = accounts_;
  after.add({.noise = release.noise, .sampling = release.sampling}, release.times, release.members);
  const auto spent = after.spent(delta);
  release.epsilon = spent.epsilon, release.order = spent.order, release.delta = delta;
  append(kRelease, record::write(release));
  enter(release);
}

void Ledger::enter(const Release& release) {
  accounts_.add({.noise = release.noise, .sampling = release.sampling}, release.times, release.members);
  digests_.insert(release.digest);
  rounds_.emplace(release.run, release.round);
}

}  // namespace evenkeel::privacy
