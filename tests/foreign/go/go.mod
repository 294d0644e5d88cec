module foreign

go 1.20
