#include "secure/node_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/plain/base64.h"
#include "base/plain/files.h"
#include "secure/round_json.h"
#include "secure/testing.h"

namespace evenkeel::secure {
namespace {

using namespace evenkeel::testing;

/// Returns the permissions of a path.
mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777;
}

/// Returns a value that was written as JSON text and read again.
template <typename T>
T again(const T& value) {
  const auto json = parse_json(to_json(value).dump(), "a message");
  return read_as<T>(JsonView(json, "a message"));
}

TEST(RoundJson, MessagesThatWereSentAreReadUnchanged) {
  MaskedRound round({4, 7, 9, 12}, 3);
  EXPECT_EQ(again(round.context), round.context);
  const auto keys = round.nodes.at(1).keys(signer_of(7));
  EXPECT_EQ(again(keys), keys);
  round.exchange_keys();
  const auto shares = round.nodes.at(0).take_keys(round.server.all_keys(), verified);
  EXPECT_EQ(again(shares), shares);
}

TEST(RoundJson, ARoundWhoseMessagesAllTravelAsTextHasTheRightSum) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  for (auto& [place, node] : round.nodes)
    round.server.take_keys(again(node.keys(signer_of(round.client(place)))), verified);
  for (auto& [place, node] : round.nodes)
    round.server.take_shares(again(node.take_keys(round.server.all_keys(), verified)));
  for (auto& [place, node] : round.nodes) node.take_shares(again(round.server.inbox_of(place)));
  for (const Place place : {0, 1, 3, 4}) round.server.take_upload(place, round.masked(place));
  round.server.close();
  for (const Place place : round.survivors()) round.sign(place);
  const auto request = again(round.server.unmask_request());
  for (const Place place : round.survivors())
    round.server.take_unmask(place, again(round.nodes.at(place).unmask(request, verified, round.summed[place])));
  EXPECT_TRUE(same(round.server.sum(), sum_of({4, 7, 12, 20})));
}

TEST(RoundJson, MessagesOfAStrangerAreRefused) {
  const auto refused = [](const Json& json, auto value) {
    EXPECT_THROW(from_json(JsonView(json, "a message"), value), Error) << json;
  };
  const std::string bytes = to_base64(std::string(32, 'k'));
  const Json good = {{"place", 1}, {"mask", bytes}, {"share", bytes}, {"signature", bytes}};
  const auto changed = [](Json json, const char* key, const Json& value) {
    json[key] = value;
    return json;
  };
  KeysOfMember read;
  from_json(JsonView(good, "a message"), read);
  EXPECT_EQ(read.place, 1);
  refused(changed(good, "place", -1), KeysOfMember());
  refused(changed(good, "place", 100), KeysOfMember());
  refused(changed(good, "mask", to_base64("short")), KeysOfMember());
  refused(changed(good, "mask", 7), KeysOfMember());
  refused(changed(good, "signature", "not Base64!"), KeysOfMember());
  refused(changed(good, "signature", to_base64(std::string(5000, 'k'))), KeysOfMember());
  for (const char* place : {"-1", "100", "01", "one", ""}) refused({{"boxes", {{place, bytes}}}}, Inbox());
  refused({{"survivors", "012"}, {"signatures", Json::object()}}, UnmaskRequest());
  refused({{"survivors", std::string(101, '1')}, {"signatures", Json::object()}}, UnmaskRequest());
  refused({{"seeds", {{"1", to_base64("short")}}}, {"secrets", Json::object()}}, UnmaskReply());
}

TEST(NodeStoreTest, AStoredAttemptContinuesWithTheSameAnswers) {
  const TemporaryFolder folder;
  MaskedRound round({4, 7, 9, 12}, 3);
  round.train({3});
  for (const Place place : round.survivors()) round.sign(place);
  NodeStore store(folder.path() / "node");
  EXPECT_FALSE(store.load());
  store.save(round.nodes.at(0).attempt());
  NodeRound stored(NodeStore(folder.path() / "node").load().value(), rules_of(4));
  EXPECT_EQ(stored.keys(signer_of(4)), round.nodes.at(0).keys(signer_of(4)));
  const auto reply = stored.unmask(round.server.unmask_request(), verified, store);
  EXPECT_TRUE(reply.seeds == round.unmasked(0).seeds);
  auto other = summand_of(99);
  EXPECT_NE(refusal([&] { stored.mask(other); }).find("a second upload"), std::string::npos);
}

TEST(NodeStoreTest, FilesAreTheOwnersAlone) {
  const TemporaryFolder folder;
  const MaskedRound round({4, 7, 9}, 3);
  const NodeStore store(folder.path() / "node");
  store.save(round.nodes.at(0).attempt());
  store.save(round.nodes.at(0).attempt());
  EXPECT_EQ(mode_of(folder.path() / "node"), 0700U);
  EXPECT_EQ(mode_of(folder.path() / "node/attempt.json"), 0600U);
  EXPECT_EQ(entries_of(folder.path() / "node").size(), 1U);
}

TEST(NodeStoreTest, AWipedAttemptIsGoneAndSummedRoundsStay) {
  const TemporaryFolder folder;
  const MaskedRound round({4, 7, 9}, 3);
  NodeStore store(folder.path());
  store.save(round.nodes.at(0).attempt());
  const SummedSet set{digest_of(round.context), {true, false, true}};
  store.store("hospital", 3, set);
  store.wipe();
  EXPECT_FALSE(store.load());
  EXPECT_EQ(NodeStore(folder.path()).find("hospital", 3), set);
  EXPECT_FALSE(store.find("hospital", 4));
  EXPECT_FALSE(store.find("another", 3));
  for (const auto& file : entries_of(folder.path()))
    EXPECT_EQ(read_file(file).find(to_base64(round.nodes.at(0).attempt().seed.view())), std::string::npos) << file;
}

TEST(NodeStoreTest, AKillWithinASaveLeavesAnAttempt) {
  const TemporaryFolder folder;
  const MaskedRound round({4, 7, 9}, 3);
  const NodeStore store(folder.path());
  store.save(round.nodes.at(0).attempt());
  fs::copy_file(folder.path() / "attempt.json", folder.path() / "attempt.next");
  std::ofstream(folder.path() / "attempt.json") << std::string(100, '\0');
  EXPECT_EQ(NodeRound(store.load().value(), rules_of(4)).keys(signer_of(4)), round.nodes.at(0).keys(signer_of(4)));
  std::ofstream(folder.path() / "attempt.next") << "{\"half";
  EXPECT_FALSE(store.load()) << "a wipe that was killed, and a save that had only begun after it";
  std::ofstream(folder.path() / "attempt.json") << "{\"half";
  EXPECT_THROW(store.load(), Error) << "both are damaged";
  store.save(round.nodes.at(0).attempt());
  std::ofstream(folder.path() / "attempt.next") << "{\"half";
  EXPECT_TRUE(store.load()) << "a save that had only begun";
}

TEST(NodeStoreTest, AKillWithinAWipeLeavesNoAttempt) {
  const TemporaryFolder folder;
  const MaskedRound round({4, 7, 9}, 3);
  const NodeStore store(folder.path());
  store.save(round.nodes.at(0).attempt());
  const auto file = folder.path() / "attempt.json";
  const auto text = read_file(file);
  for (const size_t zeros : {size_t{1}, text.size() / 2, text.size()}) {
    std::ofstream(file) << std::string(zeros, '\0') << text.substr(zeros);
    EXPECT_FALSE(store.load()) << zeros;
  }
  std::ofstream(folder.path() / "attempt.next").flush();
  EXPECT_FALSE(store.load()) << "a save had begun after it";
  store.save(round.nodes.at(0).attempt());
  EXPECT_TRUE(store.load());
}

TEST(NodeStoreTest, ADamagedListOfSummedRoundsIsRefused) {
  const TemporaryFolder folder;
  NodeStore store(folder.path());
  store.store("hospital", 3, {{}, {true, true, true}});
  auto text = read_file(folder.path() / "summed.jsonl");
  text[text.find("111")] = '0';
  std::ofstream(folder.path() / "summed.jsonl") << text;
  EXPECT_THROW(store.find("hospital", 3), Error);
}

}  // namespace
}  // namespace evenkeel::secure
