// A library that binds its own calls to itself (-Bsymbolic), one of which Cistern has to see.
int clCreateBuffer(void) { return 1; }
int use(void) { return clCreateBuffer(); }
