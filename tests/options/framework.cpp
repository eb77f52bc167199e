// A library that does nothing: reports recognise frameworks by the names of the files that they load.
extern "C" int cistern_test_framework() { return 1; }
