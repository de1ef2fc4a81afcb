#include "privacy/ledger.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/plain/files.h"
#include "base/testing.h"
#include "crypto/testing.h"
#include "privacy/example_draws.h"

namespace evenkeel::privacy {
namespace {

using testing::TemporaryFolder;

Release release(const std::string& digest, int64_t round = 1) {
  return {.run = "r1", .round = round, .noise = 1, .sampling = 0.1, .times = 3, .clip = 0.5, .digest = digest};
}

std::string refusal(const fs::path& folder) {
  try {
    Ledger ledger(folder);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// Makes a ledger of two releases.
void fill(const fs::path& folder) {
  Ledger ledger(folder);
  ledger.add(Plan{.run = "r1", .epsilon = 8, .delta = 1e-6, .clip = 0.5, .sampling = 0.1, .noise = 1});
  ledger.add(release("a"), 1e-6);
  ledger.add(release("b", 2), 1e-6);
}

TEST(Ledger, GoesOnWithAccountPlansAndKeyAfterAProcessEnded) {
  const TemporaryFolder folder;
  EXPECT_FALSE(Ledger::exists(folder.path()));
  fill(folder.path());
  EXPECT_TRUE(Ledger::exists(folder.path()));
  std::string key;
  {
    const Ledger ledger(folder.path());
    key = testing::hex(ledger.key().bytes());
    EXPECT_NEAR(
        ledger.account().spent(1e-6).epsilon,
        [] {
          Accountant account;
          account.add({.noise = 1, .sampling = 0.1}, 6);
          return account.spent(1e-6).epsilon;
        }(),
        1e-12);
    EXPECT_TRUE(ledger.holds("a") && ledger.holds("b") && !ledger.holds("c"));
    EXPECT_EQ(ledger.plan_of("r1")->epsilon, 8);
    EXPECT_FALSE(ledger.plan_of("r2"));
  }
  EXPECT_EQ(testing::hex(Ledger(folder.path()).key().bytes()), key);
  const auto releases = Ledger::releases(folder.path());
  ASSERT_EQ(releases.size(), 2u);
  EXPECT_LT(releases[0].epsilon, releases[1].epsilon);
  EXPECT_EQ(releases[1].round, 2);
}

TEST(Ledger, ItsKeyIsReadByItsOwnerAlone) {
  const TemporaryFolder folder;
  fill(folder.path());
  struct stat status {};
  ASSERT_EQ(::stat((folder.path() / "privacy.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ::chmod((folder.path() / "privacy.key").c_str(), 0640);
  EXPECT_NE(refusal(folder.path()).find("chmod 600"), std::string::npos);
}

TEST(Ledger, RefusesChangedAndMissingLines) {
  const TemporaryFolder folder;
  fill(folder.path());
  const auto file = folder.path() / Ledger::kFile;
  const auto text = read_file(file);
  auto changed = text;
  changed[changed.find("\"times\":3") + 8] = '1';
  write_file_atomic(file, changed);
  EXPECT_NE(refusal(folder.path()).find("privacy.jsonl"), std::string::npos);
  const auto last = text.rfind('\n', text.size() - 2) + 1, second = text.find('\n') + 1;
  write_file_atomic(file, text.substr(0, last));
  EXPECT_NE(refusal(folder.path()).find("it had 3"), std::string::npos);
  write_file_atomic(file, text.substr(second));
  EXPECT_NE(refusal(folder.path()), "");
  remove_path(file);
  EXPECT_NE(refusal(folder.path()).find("is missing, it had 3"), std::string::npos);
  write_file_atomic(file, text);
  EXPECT_EQ(refusal(folder.path()), "");
}

TEST(Ledger, ALineThatAKilledProcessDidNotFinishIsNoRelease) {
  const TemporaryFolder folder;
  fill(folder.path());
  std::ofstream(folder.path() / Ledger::kFile, std::ios::app) << R"({"n":4,"kind":"release","tim)";
  Ledger ledger(folder.path());
  EXPECT_FALSE(ledger.holds("c"));
  ledger.add(release("c", 3), 1e-6);
  EXPECT_EQ(Ledger::releases(folder.path()).size(), 3u);
}

TEST(Ledger, ALineWithoutItsHeadCounts) {
  const TemporaryFolder folder;
  fill(folder.path());
  const auto head = read_file(folder.path() / "privacy.head.json");
  Ledger(folder.path()).add(release("c", 3), 1e-6);
  write_file_atomic(folder.path() / "privacy.head.json", head);  // killed between line and head
  EXPECT_TRUE(Ledger(folder.path()).holds("c"));
}

TEST(Ledger, WithoutItsKeyDoesNotGoOn) {
  const TemporaryFolder folder;
  fill(folder.path());
  remove_path(folder.path() / "privacy.key");
  EXPECT_NE(refusal(folder.path()).find("privacy.key is missing"), std::string::npos);
}

TEST(Ledger, WithOneBitOfItsKeyChangedDoesNotGoOn) {
  const TemporaryFolder folder;
  fill(folder.path());
  const auto file = folder.path() / "privacy.key";
  auto bytes = read_file(file);
  bytes[17] ^= 4;
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_NE(refusal(folder.path()).find("privacy.key is not the key"), std::string::npos);
  bytes[17] ^= 4;
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_EQ(refusal(folder.path()), "");
}

TEST(Ledger, IsUsedByOneProcessAtATime) {
  const TemporaryFolder folder;
  const Ledger ledger(folder.path());
  EXPECT_NE(refusal(folder.path()), "");
}

TEST(ExampleDraws, LotsHaveTheirProbabilityAndDifferBySteps) {
  const ExampleDraws draws(testing::secret_of("lots"));
  constexpr int64_t kRows = 3001;
  std::vector<int64_t> counts(kRows, 0);
  int64_t all = 0;
  for (int64_t step = 0; step < 400; ++step)
    for (const int64_t row : draws.lot(step, kRows, 0.03)) ++counts[static_cast<size_t>(row)], ++all;
  EXPECT_NEAR(static_cast<double>(all), 400 * kRows * 0.03, 5 * std::sqrt(400 * kRows * 0.03));
  // Each row: 12 on average, with a deviation of 3.4.
  EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 12 + 6 * 3.5);
  EXPECT_LT(std::count(counts.begin(), counts.end(), 0), 4);
  EXPECT_EQ(draws.lot(7, kRows, 0.03), draws.lot(7, kRows, 0.03));
  EXPECT_NE(draws.lot(7, kRows, 0.03), draws.lot(8, kRows, 0.03));
  EXPECT_EQ(draws.lot(7, kRows, 1).size(), static_cast<size_t>(kRows));
  EXPECT_TRUE(draws.lot(7, 5, 1e-12).empty());
}

TEST(ExampleDraws, NoiseIsNormalAndDiffersByStepsAndTensors) {
  const ExampleDraws draws(testing::secret_of("noise"));
  constexpr size_t kValues = 200'001;
  std::vector<float> noise(kValues, 1), other(kValues, 1), third(kValues, 1);
  draws.add_noise(3, 0, 2, noise), draws.add_noise(3, 1, 2, other), draws.add_noise(4, 0, 2, third);
  double sum = 0, squares = 0, product = 0, product_of_steps = 0;
  for (size_t i = 0; i < kValues; ++i) {
    const double value = noise[i] - 1;
    sum += value, squares += value * value;
    product += value * (other[i] - 1), product_of_steps += value * (third[i] - 1);
  }
  const double n = kValues, bound = 5 * 4 / std::sqrt(n);
  EXPECT_NEAR(sum / n, 0, 5 * 2 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 4, bound * std::sqrt(2));
  EXPECT_NEAR(product / n, 0, bound);
  EXPECT_NEAR(product_of_steps / n, 0, bound);
}

}  // namespace
}  // namespace evenkeel::privacy
